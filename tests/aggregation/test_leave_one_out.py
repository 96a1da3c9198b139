"""What remains of a mean without one client, and how far its update is from that."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.aggregation.leave_one_out import deviation, deviations, leave_out, leave_out_sent
from tests.methods.simulator import close


def bits(text: str) -> torch.Tensor:
    return torch.tensor([c == "1" for c in text])


DELTA, STEP = torch.tensor([1.0, 2, 0, -1]), torch.tensor([0.5, 1, -0.5, 0])


@pytest.mark.parametrize(
    ("share", "others", "score"),
    [
        (0.25, [0.333333, 0.666667, -0.666667, 0.333333], 0.483602),
        (0.0, [0.5, 1, -0.5, 0], 0.166667),
        (0.6, [-0.25, -0.5, -1.25, 1.5], 1.552771),
    ],
)
def test_the_gradient_score_is_how_far_the_others_step_deviates(share, others, score):
    found = leave_out(STEP, DELTA, share)
    assert close(found, others)
    assert close(deviation([(DELTA, found)]), [score])


def test_the_gradient_score_of_vectors_that_are_zero():
    assert close(deviation([(DELTA, leave_out(torch.zeros(4), DELTA, 0.25))]), [2])
    assert deviation([(torch.zeros(4), leave_out(STEP, torch.zeros(4), 0.25))]) == 1
    assert deviation([(DELTA, torch.zeros(4, dtype=torch.float64))]) == 1


def test_the_model_without_a_client():
    found = leave_out(torch.tensor([1.0, 2, 3]), torch.tensor([2.0, 0, 3]), 0.25)
    assert close(found, [0.666667, 2.666667, 3])


def test_the_model_without_a_client_of_entries_that_some_sent():
    """Weights .5, .3, .2; client 1 sent all but entry 2, with .6 of the weight of entry 0 and .3 of the others."""
    mean, total = torch.tensor([6.6, 4.8, 3, 6.8]), torch.tensor([0.5, 1, 0.5, 1])
    found = leave_out_sent(mean, torch.tensor([5.0, 6, 7, 8]), 0.3, total, bits("1101"))
    assert close(found, [9, 30 / 7, 3, 44 / 7])


def test_an_entry_that_nobody_else_sent_stays_whatever_its_rounding():
    for total in (0.3, 0.3 * (1 + 1e-6)):
        found = leave_out_sent(torch.tensor([2.0]), torch.tensor([2.0]), 0.3, torch.tensor([total]), bits("1"))
        assert found.tolist() == [2]
    nobody = leave_out_sent(torch.tensor([2.0]), torch.tensor([5.0]), 0.3, torch.tensor([0.0]), bits("0"))
    assert nobody.tolist() == [2]


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=6))
def test_a_deviation_is_between_0_and_2(pairs):
    update, others = (torch.tensor(values, dtype=torch.float64) for values in zip(*pairs, strict=True))
    assert 0 <= deviation([(update, others)]) <= 2
    in_pieces = zip(update.split(2), others.split(2), strict=True)
    assert deviation(in_pieces) == pytest.approx(deviation([(update, others)]), abs=1e-12)
    assert deviation([(update, update)]) in (1, pytest.approx(0, abs=1e-12))


START = torch.tensor([1.0, 1, 1, 1])


SENT = [torch.tensor(values) for values in ([0.0, -1, 0, 2], [0.5, 0, 9, 1], [-1.0, 1, 0, 0])]


def test_an_update_is_compared_with_the_mean_of_the_others_over_what_was_sent():
    """Updates (1, 2, -, -1), (.5, 1, -, 0), (2, 0, 1, -) by hand, - for what was not sent."""
    known = [bits("1101"), bits("1101"), bits("1110")]
    others = [[1.25, 0.5, 0, 0], [1.5, 1, 0, -1], [0.75, 1.5, 0, 0]]
    updates = [[1.0, 2, 0, -1], [0.5, 1, 0, 0], [2.0, 0, 1, 0]]
    scores = [deviation([(torch.tensor(u), torch.tensor(o).double())]) for u, o in zip(updates, others, strict=True)]
    assert deviations(START, SENT, known) == pytest.approx(scores, abs=1e-12)
    assert close(scores, [0.317712, 0.240743, 0.6], digits=6)


def test_updates_that_are_alike_opposed_or_alone():
    whole = torch.ones(4, dtype=torch.bool)
    assert deviations(START, [SENT[0]] * 3, [whole] * 3) == pytest.approx([0] * 3, abs=1e-12)
    assert deviations(START, [SENT[0], 2 * START - SENT[0]], [whole] * 2) == pytest.approx([2, 2], abs=1e-12)
    assert deviations(START, [SENT[0]], [whole]) == [1]
    assert deviations(START, SENT[:2], [bits("1100"), bits("0011")]) == [1, 1]


def test_the_number_of_threads_changes_no_bit():
    stream, found, before = torch.Generator().manual_seed(0), [], torch.get_num_threads()
    start, *sent = torch.randn(6, 50_001, generator=stream)
    masks = [torch.rand(50_001, generator=stream) > 0.3 for _ in sent]
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(deviations(start, sent, masks))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]
