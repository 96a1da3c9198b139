"""A model cut into blocks, which pFedGate scales and drops."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from fedbench.module.layout import Layout


@dataclass(frozen=True)
class Blocks:
    """The blocks of a model in order.

    sizes `[L]`: in elements; first `[L]`: the first of several pieces of a tensor; linear `[L]`: of a Linear layer.
    """

    sizes: tuple[int, ...]
    first: tuple[bool, ...]
    linear: tuple[bool, ...]

    @classmethod
    def of(cls, layout: Layout, per_tensor: int) -> "Blocks":
        """Every parameter tensor in at most so many pieces of equal size, the last one shorter."""
        blocks: list[tuple[int, bool, bool]] = []
        for slot in layout.params:
            piece = ceil(slot.size / min(per_tensor, slot.size))
            starts = range(0, slot.size, piece)
            blocks += [(min(piece, slot.size - start), per_tensor > 1 and start == 0, slot.linear) for start in starts]
        return cls(*zip(*blocks, strict=True)) if blocks else cls((), (), ())

    def spread(self, values: Tensor) -> Tensor:
        """`[N]`: the value of every element's block; values `[L]`."""
        return values.repeat_interleave(torch.tensor(self.sizes, device=values.device))

    def scale(self, vector: Tensor, values: Tensor) -> Tensor:
        """`[N]`: every element of a vector times the value of its block; values `[L]`."""
        # A third of the time of spreading the values first.
        parts = zip(vector.split(self.sizes), values.unbind(), strict=True)
        return torch.cat([part * value for part, value in parts])

    def products(self, one: Tensor, other: Tensor) -> Tensor:
        """`[L]`: the inner products of two vectors `[N]`, block by block."""
        pairs = zip(one.split(self.sizes), other.split(self.sizes), strict=True)
        return torch.stack([torch.dot(a, b) for a, b in pairs])


def select_blocks(
    factors: Sequence[float], sizes: Sequence[int], groups: Sequence[bool], first: Sequence[bool], share: float
) -> list[bool]:
    """Marks the blocks to keep: those with the largest factors that fit the budget, per group.

    A group's budget is `share` of its elements; the first pieces of tensors stay whatever they cost.
    """
    keep, budget = list(first), {False: 0.0, True: 0.0}
    for size, group, stays in zip(sizes, groups, first, strict=True):
        budget[group] += share * size - size * stays
    for block in sorted(range(len(sizes)), key=lambda b: -factors[b]):
        if not keep[block] and sizes[block] <= budget[groups[block]] + 1e-6:
            keep[block] = True
            budget[groups[block]] -= sizes[block]
    return keep
