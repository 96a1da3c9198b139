"""The numbers of a module, which are sent and averaged."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedbench.errors import refuse_hidden_fields


@dataclass(eq=False)
class Weights:
    """A module's numbers as flat vectors.

    params: trainable parameters `[N]`; buffers: floating-point buffers `[M]` (running statistics);
    counters: integer buffers `[c]`, int64, on the CPU, never averaged.
    """

    params: Tensor
    buffers: Tensor
    counters: Tensor

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        refuse_hidden_fields(cls, Weights)

    def clone(self) -> "Weights":
        return Weights(self.params.clone(), self.buffers.clone(), self.counters.clone())

    def replace(self, **parts: Tensor) -> "Weights":
        """A copy with some vectors replaced."""
        return replace(self, **parts)

    def is_same(self, other: "Weights") -> bool:
        """Whether both share the same memory; further fields of a subclass do not count."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(Weights))
        return all(a.shape == b.shape and (not a.numel() or a.data_ptr() == b.data_ptr()) for a, b in pairs)

    def is_finite(self) -> bool:
        """Whether every parameter is finite and no buffer NaN; constant buffers, such as masks, may be infinite."""
        # A sum detects every NaN and infinity in one pass; if float32 overflows, float64 decides.
        finite = torch.isfinite(self.params.sum()) or torch.isfinite(self.params.sum(dtype=torch.float64))
        return bool(finite) and not (self.buffers.numel() and bool(self.buffers.isnan().any()))
