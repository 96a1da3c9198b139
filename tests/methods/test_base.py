"""What methods share."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.methods.base import MOST_SLICES, Part

masks = st.lists(st.booleans(), min_size=1, max_size=30) | st.just([True, False] * (MOST_SLICES + 1))


@given(masks)
def test_a_part_takes_and_puts_the_entries_of_its_mask(bits):
    mask, vector = torch.tensor(bits), torch.arange(float(len(bits)))
    part = Part(mask)
    taken = part.take(vector)
    assert torch.equal(taken, vector[mask])
    assert torch.equal(part.put(vector, -taken), torch.where(mask, -vector, vector))
    assert torch.equal(vector, torch.arange(float(len(bits))))
