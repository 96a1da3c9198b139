"""A model cut into blocks, and which of them stay."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.module.blocks import Blocks, select_blocks
from fedbench.module.layout import Layout, Slot


def layout(*sizes) -> Layout:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    slots = tuple(Slot(str(i), (n,), s, s + n) for i, (n, s) in enumerate(zip(sizes, starts, strict=True)))
    return Layout(slots, (), ())


def test_pieces():
    blocks = Blocks.of(layout(25, 7, 3), 10)
    assert blocks.sizes == (*[3] * 8, 1, *[1] * 7, *[1] * 3)
    assert Blocks.of(layout(30, 5, 15, 3), 4).sizes == (8, 8, 8, 6, 2, 2, 1, 4, 4, 4, 3, 1, 1, 1)
    assert Blocks.of(layout(30, 5), 1).sizes == (30, 5)
    assert Blocks.of(layout(30, 5), 1).first == (False, False)
    assert Blocks.of(layout(8, 1), 2).first == (True, False, True)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 8))
def test_values_of_blocks_reach_their_elements(sizes, per_tensor):
    blocks = Blocks.of(layout(*sizes), per_tensor)
    values = torch.arange(len(blocks.sizes), dtype=torch.float64)
    spread = blocks.spread(values)
    assert spread.tolist() == [b for b, size in enumerate(blocks.sizes) for _ in range(size)]
    assert sum(blocks.sizes) == sum(sizes)
    numbers = torch.arange(sum(sizes), dtype=torch.float64)
    assert torch.equal(blocks.scale(numbers, values), numbers * spread)


@pytest.mark.parametrize(
    ("factors", "sizes", "groups", "first", "expected"),
    [
        ((0.9, 0.2, 0.7, 0.7, 0.4), (4, 10, 6, 3, 7), "00000", "00000", "10110"),
        ((0.9, 0.2, 0.7, 0.7, 0.4), (4, 10, 6, 3, 7), "11000", "00000", "10100"),
        ((0.1, 0.6, 0.5, 0.9, 0.2, 0.3, 0.8, 0.4), (3, 3, 3, 3, 2, 2, 2, 2), "00000000", "10001000", "10011010"),
    ],
)
def test_which_blocks_stay(factors, sizes, groups, first, expected):
    flags = [[c == "1" for c in text] for text in (groups, first, expected)]
    assert select_blocks(factors, sizes, flags[0], flags[1], 0.5) == flags[2]


@given(st.data(), st.floats(0.05, 1))
def test_what_stays_fits_the_budget(data, share):
    blocks = Blocks.of(layout(*data.draw(st.lists(st.integers(1, 30), min_size=2, max_size=5))), 4)
    count = len(blocks.sizes)
    groups = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    factors = data.draw(st.lists(st.sampled_from([0.1, 0.2, 0.5, 0.9]), min_size=count, max_size=count))
    keep = select_blocks(factors, blocks.sizes, groups, blocks.first, share)
    for group in (False, True):
        of_group = [b for b in range(count) if groups[b] == group]
        budget, firsts = (
            share * sum(blocks.sizes[b] for b in of_group),
            sum(blocks.sizes[b] for b in of_group if blocks.first[b]),
        )
        used = sum(blocks.sizes[b] for b in of_group if keep[b])
        assert used <= max(budget, firsts) + 1e-6
        assert all(keep[b] for b in of_group if blocks.first[b])
        for b in of_group:  # a block was dropped for want of room only
            if not keep[b]:
                before = [c for c in of_group if not blocks.first[c] and (-factors[c], c) < (-factors[b], b)]
                assert firsts + sum(blocks.sizes[c] for c in before if keep[c]) + blocks.sizes[b] > budget
