"""Masks of flat vectors, and exact combinations of vectors by masks.

On a CPU, a scattered mask makes `torch.where` mispredict every second branch; integer arithmetic takes a quarter of its
time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def holds_one(mask: Tensor) -> bool:
    """Whether a mask (bool, or 0 and 1 in bytes) has a one. `any` takes thirty times as long on a CPU."""
    return bool(mask.numel()) and bool(mask.view(torch.int8).amax())


def mask_indices(mask: Tensor) -> Tensor:
    """Indices `[n]` of the ones of a mask `[N]`, bool. `nonzero` takes two to eight times as long on a CPU."""
    if mask.device.type != "cpu":
        return mask.nonzero().flatten()
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def bitmask(mask: Tensor, like: Tensor) -> Tensor:
    """A mask (bool, or 0 and 1 in bytes) as integers as wide as the numbers `like`, with all bits 1 or all 0."""
    return mask.view(torch.int8).neg().to(INTEGERS[like.element_size()])


def without(values: Tensor, mask: Tensor) -> Tensor:
    """`values` `[N]` with 0 where the mask is 1. `masked_fill` takes five times as long on a CPU."""
    kept = bitmask(mask, values).bitwise_not_()
    return kept.bitwise_and_(values.view(kept.dtype)).view(values.dtype)


def choose(mask: Tensor, ones: Tensor, zeros: Tensor, in_place: bool = False) -> Tensor:
    """`ones` `[..., N]` where the mask is 1, else `zeros` `[N]`. mask: as for `bitmask`, or its result.

    in_place: writes the result to `ones`.
    """
    bits = mask if mask.dtype in INTEGERS.values() else bitmask(mask, ones)
    here, there = ones.view(bits.dtype), zeros.view(bits.dtype)
    flip = torch.bitwise_xor(here, there, out=here if in_place else None).bitwise_and_(bits)
    return flip.bitwise_xor_(there).view(ones.dtype)


@dataclass(frozen=True, eq=False)
class Masks:
    """Some entries of a model: bool params `[N]`, float buffers `[M]`, and counters `[c]`.

    counters: None: those of the modules with these buffers.
    """

    params: Tensor
    buffers: Tensor
    counters: Tensor | None = None

    def __or__(self, other: "Masks") -> "Masks":
        return Masks(self.params | other.params, self.buffers | other.buffers)

    def __and__(self, other: "Masks") -> "Masks":
        return Masks(self.params & other.params, self.buffers & other.buffers)

    def __invert__(self) -> "Masks":
        return Masks(~self.params, ~self.buffers)


MOST_SLICES = 64
"""Entries in more contiguous ranges than this are scattered: no slices are made for them."""


class Entries:
    """Some entries of a vector: all, none, or those in a mask."""

    def __init__(self, mask: Tensor) -> None:
        # NumPy counts in a tenth of the time of PyTorch's sum.
        self.mask, self.size = mask, int(np.count_nonzero(mask.cpu().numpy()))
        self.all = self.size == len(mask)
        # Slices take at most a sixth of a mask's time: 3 to 14 ms for a million entries.
        is_whole = self.size in (0, len(mask))
        slices = [slice(0, self.size)] if is_whole else slices_of(mask, MOST_SLICES)
        self._places: list[Any] = [mask] if slices is None else slices
        self._sizes = [self.size] if slices is None else [part.stop - part.start for part in self._places]

    def take(self, vector: Tensor) -> Tensor:
        """These entries; the vector itself if they are all."""
        return vector if self.all else torch.cat([vector[part] for part in self._places])

    def put(self, vector: Tensor, values: Tensor | None) -> Tensor:
        """A copy of `vector` with these entries replaced; the vector itself if there are no values."""
        if values is None or not self.size:
            return vector
        if self.all:
            return values
        out = vector.clone()
        for part, piece in zip(self._places, values.split(self._sizes), strict=True):
            out[part] = piece
        return out


def slices_of(mask: Tensor, most: int) -> list[slice] | None:
    """The ranges of ones, or None if there are more than `most`."""
    # NumPy takes a tenth of PyTorch's time: a quarter of a millisecond for a million entries.
    changes = np.diff(mask.cpu().numpy(), prepend=False, append=False)
    if np.count_nonzero(changes) > 2 * most:
        return None
    edges = np.flatnonzero(changes).tolist()
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
