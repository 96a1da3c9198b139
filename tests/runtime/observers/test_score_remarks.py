"""What is said of scores, and when."""

from types import SimpleNamespace
from typing import Any

from fedbench.jobs.resolve import resolve
from fedbench.results.remarks import Doubt
from fedbench.runtime.observers.observer import EvaluatedRound, PointScores
from fedbench.runtime.observers.score_remarks import ScoreRemarks
from fedbench.runtime.server.round_record import RoundRecord
from tests.runtime.rounds import driver, small


def observer(**more: Any) -> ScoreRemarks:
    run = driver(resolve(small(**more)))
    return ScoreRemarks(run.parts, run.setup.partition, run.calendar)


def evaluated(round: int, scores: dict) -> EvaluatedRound:
    return EvaluatedRound(0, RoundRecord(round), [PointScores("after_agg", scores, {})])  # type: ignore[typeddict-item]


def test_scores_of_a_sample_are_said_before_round_1():
    (line,) = observer(evaluate={"clients": 4}).first_remarks()
    assert line.startswith("scores are those of 4 of 10 clients")
    assert not [*observer().first_remarks()]


def test_outputs_that_are_not_numbers_are_a_doubt():
    nan = {0: {"test": {"accuracy": (0.0, 4.0), "loss": (float("nan"), 4.0)}}}
    (line,) = observer().on_evaluation(evaluated(1, nan))
    assert "some outputs at after_agg are not numbers" in line
    assert isinstance(line, Doubt)


def test_clients_without_a_score_are_named_in_the_first_evaluated_round():
    asked = observer(evaluate={"metric": "auroc", "every": 2}, rounds=4, partition={"name": "iid", "clients": 4})
    lacking = {client: {"test": {"accuracy": (1.0, 4.0), "loss": (1.0, 4.0)}} for client in range(4)}
    assert any("AUROC" in line for line in asked.on_evaluation(evaluated(2, lacking)))
    assert not any("AUROC" in line for line in asked.on_evaluation(evaluated(4, lacking)))


def test_rounds_in_which_nothing_was_trained_are_said_at_the_end():
    idle, busy = (SimpleNamespace(record=RoundRecord(4, idle=count)) for count in (1, 0))
    (line,) = observer().on_end(idle)  # type: ignore[arg-type]
    assert "nothing was trained in 1 of 4 rounds" in line
    assert not [*observer().on_end(busy)]  # type: ignore[arg-type]
