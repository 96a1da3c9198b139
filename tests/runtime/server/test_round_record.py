"""What is noted of a round."""

from fedbench.runtime.exchange import Report
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from tests.runtime.rounds import play, small, stop


def test_failures_that_are_told_later_say_when_they_were():
    first = RoundRecord(2, failed=[(3, "ValueError: no"), (5, "the training loss became nan")])
    told = [(3, "in round 2: ValueError: no"), (5, "in round 2: the training loss became nan")]
    assert first.failures_with_round() == told
    assert RoundRecord(3, failed=told).failures_with_round() == told  # once
    assert first.failed[0] == (3, "ValueError: no")


def test_no_two_rounds_share_a_list():
    one, other = RoundRecord(1), RoundRecord(2)
    one.took_part.append(4)
    one.failed.append((4, "x"))
    one.traces[4, "loss"] = 0.5
    assert (other.took_part, other.failed, other.traces) == ([], [], {})


def trained(round: int, steps: int) -> TrainedRound:
    return TrainedRound(round, [0], [0], [], [Report(0, trained=True, steps=steps)], [], True)


def test_a_line_has_the_mean_costs_of_the_rounds_since_the_line_before():
    first = RoundRecord(bytes_up=9).after(trained(1, 4), was_evaluated=False)  # an extra pass before round 1
    assert first.costs() == {"train_loss": None, "steps": 4, "bytes_up": 9, "bytes_down": 0}
    second = first.after(trained(2, 5), was_evaluated=False)
    assert (second.costs()["steps"], second.costs()["bytes_up"]) == (4.5, 4.5)
    third = RoundRecord(**vars(second)).after(trained(3, 9), was_evaluated=False)  # as from a checkpoint
    third.bytes_up += 3  # an extra pass
    assert (third.costs()["steps"], third.costs()["bytes_up"]) == (6, 4)
    assert isinstance(third.costs()["steps"], int)
    assert third.steps == 9, "its own stay"
    assert third.after(trained(4, 1), was_evaluated=True).costs()["steps"] == 1


def test_a_run_that_is_stopped_between_two_lines_counts_the_rounds_before(tmp_path):
    asked = small(participation=0.4, rounds=4, evaluate={"every": 4}, checkpoint={"every": 1})
    stop(asked, tmp_path / "stopped", 4)
    assert play(asked, tmp_path / "stopped", resume=True) == play(asked, tmp_path / "whole")
