"""Packed masks say what the masks say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.aggregation.packed import bits_to_mask, mask_counts, mask_overlaps, mask_to_bits


def masks(count, size, seed=1):
    stream = torch.Generator().manual_seed(seed)
    return [torch.rand(size, generator=stream) < 0.5 for _ in range(count)]


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_masks_survive_packing(values):
    mask = torch.tensor(values)
    packed = mask_to_bits(mask)
    assert packed.dtype == torch.uint8
    assert len(packed) == -(-len(values) // 8)
    assert torch.equal(bits_to_mask(packed, len(values)), mask)


@pytest.mark.parametrize("size", [1, 9, 64, 1000, 70_001, 150_000])
def test_overlaps_and_counts_are_exact(size):
    given_masks = masks(5, size)
    stacked = torch.stack(given_masks).to(torch.int64)
    packed = torch.stack([mask_to_bits(m) for m in given_masks])
    assert torch.equal(mask_overlaps(packed), stacked @ stacked.T)
    assert mask_counts(packed, size).tolist() == stacked.sum(0).tolist()


def test_counts_of_more_masks_than_a_byte_holds():
    assert mask_counts(mask_to_bits(torch.ones(3, dtype=torch.bool)).expand(600, -1), 3).tolist() == [600] * 3
