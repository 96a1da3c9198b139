"""What is noted of a round."""

from fedbench.runtime.server.round_record import RoundRecord


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
