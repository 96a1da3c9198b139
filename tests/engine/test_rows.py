"""The numbers of several clients as rows."""

from typing import Any

import pytest
import torch
from torch import nn

from fedbench.engine.rows import ALIGNMENT, Rows
from fedbench.module.flat import FlatModule
from fedbench.module.weights import Weights


@pytest.fixture
def flat(net) -> FlatModule:
    class Normed(net):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))

    return FlatModule(Normed(), torch.device("cpu"), "32-true", head=None)


def weights_of(flat: FlatModule, number: int) -> Weights:
    start = flat.initial()
    return Weights(*(torch.full_like(part, number) for part in vars(start).values()))


def test_a_row_gives_back_what_was_loaded(flat, same):
    rows = Rows(flat, 3, aligned=False)
    for row in range(3):
        rows.load([row], [weights_of(flat, row)], [torch.tensor(float(row))])
    for row in range(3):
        assert same(rows.weights([row])[0], weights_of(flat, row))
    assert rows.losses.tolist() == [0, 1, 2]


@pytest.mark.parametrize("row", [None, 1])
def test_views_lie_in_the_rows(row, flat):
    rows, places = (
        Rows(flat, 3, aligned=False),
        [slot.head for slot in flat.layout.params],
    )
    views = rows.views((*places,), row)
    shapes = [slot.shape if row is not None else (3, *slot.shape) for slot in flat.layout.params]
    for own, part in ((True, views.moving), (False, views.frozen), (True, views.gradients)):
        assert [tuple(view.shape) for view in part] == [
            s for s, head in zip(shapes, places, strict=True) if head is own
        ]
    assert all(view.requires_grad for view in views.moving)
    rows.w[1], rows.g[1] = 5, 6
    for buffer in rows.buffers:
        buffer[1] = 7
    pick: Any = (lambda view: view[1]) if row is None else (lambda view: view)
    assert all(bool((pick(view) == 5).all()) for view in (*views.moving, *views.frozen))
    assert all(bool((pick(view) == 6).all()) for view in views.gradients)
    assert all(bool((pick(view) == 7).all()) for view in views.buffers[: len(rows.buffers)])


def test_an_aligned_row_begins_like_a_tensor_of_its_own(flat):
    rows = Rows(flat, 3, aligned=True)
    for whole in (
        rows.w,
        rows.g,
        rows.states_of({"exp_avg": True})["exp_avg"],
        rows.zeros((2, 3), torch.int64),
        rows.zeros((), torch.float64),
    ):
        assert {row.data_ptr() % ALIGNMENT for row in whole} == {whole.data_ptr() % ALIGNMENT}
    assert rows.zeros((2, 3), torch.int64).shape == (3, 2, 3)
    assert rows.zeros((), torch.float64).shape == (3,)
