"""Vectors put together by masks."""

import pytest
import torch

from fedbench.module.masks import bitmask, choose, holds_one, mask_indices, slices_of, without

ONES, ZEROS = [1.5, -0.0, torch.nan, torch.inf, 5.0], [-0.0, 2.5, 3.5, torch.nan, -torch.inf]
MASK = torch.tensor([False, True, True, False, True])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("form", ["bool", "bytes", "bits"])
@pytest.mark.parametrize("rows", [1, 3])
def test_choosing_copies_every_bit(dtype, form, rows):
    ones, zeros = torch.tensor([ONES] * rows, dtype=dtype), torch.tensor(ZEROS, dtype=dtype)
    bools = torch.stack([MASK.roll(i) for i in range(rows)])
    mask = {"bool": bools, "bytes": bools.to(torch.uint8), "bits": bitmask(bools, ones)}[form]
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    expected = torch.where(bools, ones.view(integers), zeros.view(integers))
    before = ones.clone()
    assert torch.equal(choose(mask, ones, zeros).view(integers), expected)
    assert torch.equal(ones.view(integers), before.view(integers))
    assert choose(mask, ones, zeros, in_place=True).data_ptr() == ones.data_ptr()
    assert torch.equal(ones.view(integers), expected)
    assert zeros[1] == 2.5


def test_whether_a_mask_is_one_anywhere():
    for mask in (MASK, MASK[:2], MASK[1:2]):
        assert holds_one(mask)
        assert holds_one(mask.to(torch.uint8))
    for mask in (MASK[:1], MASK[3:4], MASK[:0]):
        assert not holds_one(mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_mask_leaves(dtype):
    values, expected = torch.tensor(ONES, dtype=dtype), torch.tensor([1.5, 0, 0, torch.inf, 0], dtype=dtype)
    assert torch.equal(without(values, MASK), expected)
    assert torch.equal(values.nan_to_num(9), torch.tensor(ONES, dtype=dtype).nan_to_num(9))


def test_ranges_of_ones_up_to_a_number():
    assert slices_of(MASK, 2) == [slice(1, 3), slice(4, 5)]
    assert slices_of(MASK, 1) is None
    assert slices_of(~MASK, 2) == [slice(0, 1), slice(3, 4)]
    assert (slices_of(MASK[:0], 1), slices_of(MASK[:1], 1), slices_of(MASK | True, 1)) == ([], [], [slice(0, 5)])


def test_the_places_of_ones():
    for mask in (MASK, MASK[:1], MASK[:0], MASK | True):
        assert mask_indices(mask).tolist() == [i for i, one in enumerate(mask.tolist()) if one]
        assert mask_indices(mask).dtype == torch.int64
