"""The numbers of a module: what travels and what is averaged."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Weights:
    """A module's numbers as flat vectors.

    params: trainable parameters `[N]`; buffers: floating-point buffers `[M]` (running statistics);
    counters: integer buffers `[c]`, int64, never averaged.
    """

    params: Tensor
    buffers: Tensor
    counters: Tensor

    def clone(self) -> "Weights":
        return Weights(self.params.clone(), self.buffers.clone(), self.counters.clone())

    def replace(self, **parts: Tensor) -> "Weights":
        """The same with some of the vectors exchanged."""
        return Weights(**{"params": self.params, "buffers": self.buffers, "counters": self.counters, **parts})

    def is_finite(self) -> bool:
        """Whether every parameter is finite and no buffer NaN; a constant buffer, such as a mask, may be infinite."""
        # A sum finds every NaN and infinity in one pass; where that of float32 overflows, float64 decides.
        finite = torch.isfinite(self.params.sum()) or torch.isfinite(self.params.sum(dtype=torch.float64))
        return bool(finite) and not bool(self.buffers.isnan().any())


INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bitmask(mask: Tensor, like: Tensor) -> Tensor:
    """A bool mask `[N]` as integers of the width of the numbers `like`, whose bits are all 1 or all 0."""
    return mask.view(torch.int8).neg().to(INTEGERS[like.element_size()])


def choose(mask: Tensor, ones: Tensor, zeros: Tensor, out: Tensor | None = None) -> Tensor:
    """`ones` where the mask is 1, else `zeros`, to the bit; vectors `[N]`, the mask bool or a `bitmask`.

    Without a branch for every entry, for which `torch.where` takes four times as long on a CPU under a scattered mask.
    """
    bits = bitmask(mask, ones) if mask.dtype == torch.bool else mask
    there = zeros.view(bits.dtype)
    found = torch.bitwise_xor(ones.view(bits.dtype), there).bitwise_and_(bits)
    return torch.bitwise_xor(found, there, out=found if out is None else out.view(bits.dtype)).view(ones.dtype)
