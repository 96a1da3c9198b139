"""Which scores count at which point of a round."""

import pytest

from fedbench.jobs.resolve import resolve
from fedbench.runtime.evaluation.scores import RunScores
from fedbench.runtime.exchange import Report
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from tests.runtime.rounds import driver, small


def scored(accuracy: float) -> dict:
    return {"test": {"accuracy": (accuracy * 4, 4.0), "loss": (1.0, 4.0)}}


def scores_of(method: str = "fedavg") -> RunScores:
    run = driver(resolve(small(method)))
    return RunScores(run.method, run.calendar, run.recorder)


def reports(**points: float) -> list[Report]:
    return [Report(client, scores={point: scored(own) for point, own in points.items()}) for client in (0, 1)]


def lines(scores: RunScores, given: list[Report], round: int = 2) -> dict[str, float]:
    evaluated = scores.evaluated(RoundRecord(round, steps=7), given, {"after_agg": 0.125})
    return {own.point: own.line["test_accuracy"] for own in evaluated.points}


def test_a_client_that_sits_out_counts_with_its_last_fit():
    scores = scores_of()
    fit = Report(0, trained=True, scores={"after_fit": scored(1.0)})
    scores.take_fits(TrainedRound(1, [0], [0], [], [fit], [], True))
    other = Report(1, scores={"idle_model": scored(0.5)})
    assert lines(scores, [other]) == {"after_fit": 0.75}
    assert lines(scores, []) == {"after_fit": 0.75}, "in later rounds too"


@pytest.mark.parametrize(("method", "after_fit"), [("fedavg", None), ("local", 0.25), ("centralized", 0.75)])
def test_a_point_has_the_scores_of_its_models_or_no_line(method, after_fit):
    found = lines(scores_of(method), reports(**{"after_agg": 0.25, "global": 0.75}))
    assert found.get("after_fit") == after_fit
    assert (found["after_agg"], found["global"]) == (0.25, 0.75)


def test_the_costs_of_a_round_stand_in_the_line_of_its_fits_alone():
    scores = scores_of()
    fits = [Report(client, trained=True, scores={"after_fit": scored(1.0)}) for client in (0, 1)]
    scores.take_fits(TrainedRound(1, [0, 1], [0, 1], [], fits, [], True))
    evaluated = scores.evaluated(RoundRecord(1, steps=7), reports(after_agg=0.25), {"after_agg": 0.125})
    by_point = {own.point: own.line for own in evaluated.points}
    assert by_point["after_fit"]["steps"] == 7
    assert by_point["after_agg"]["steps"] is None
    assert by_point["after_agg"]["pooled_accuracy"] == 0.125


def test_a_fit_without_scores_hides_the_one_before():
    """A later fit was to be shown; should it fail, this one's scores are unknown."""
    scores = scores_of()
    for found in ({"after_fit": scored(1.0)}, {}):
        fit = Report(0, trained=True, scores=found)
        scores.take_fits(TrainedRound(1, [0], [0], [], [fit], [], True))
    assert lines(scores, []) == {}
