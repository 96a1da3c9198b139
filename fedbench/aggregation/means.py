"""Means of vectors: one for all, one for each client, or different ones in different places.

Sums run in ascending client order over float64 and are cast once, so that no result depends on the order of arrival
or on the number of hosts.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from threading import local

import numpy as np
import torch
from torch import Tensor

from fedbench.aggregation.columns import GATHERED, PIECE, PRODUCTS, by_columns
from fedbench.aggregation.packed import unpacked
from fedbench.module.masks import choose


def normalised(weights: Sequence[float]) -> list[float]:
    """Weights that sum to 1."""
    total = float(sum(weights))
    return [weight / total for weight in weights]


def weighted_mean(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`sum_i weights_i * vectors_i` `[N]`, float64 inside; weights as they are (`normalised` makes them sum to 1)."""
    out = torch.empty_like(vectors[0])

    def part(columns: slice) -> None:
        out[columns] = _weighted_sum([vector[columns] for vector in vectors], weights)

    by_columns(part, len(out))
    return out


def mean(vectors: Sequence[Tensor]) -> Tensor:
    """The plain mean `[N]`."""
    return weighted_mean(vectors, [1 / len(vectors)] * len(vectors))


def trimmed_mean(vectors: Sequence[Tensor], cut: int) -> Tensor:
    """For each element the plain mean `[N]` of the values without the `cut` smallest and the `cut` largest of them.

    Sorted by NumPy, which takes a fifteenth of torch's time.
    """
    if not cut:
        return mean(vectors)
    out, kept = torch.empty_like(vectors[0]), slice(cut, len(vectors) - cut)
    weights = [1 / (len(vectors) - 2 * cut)] * (len(vectors) - 2 * cut)

    def part(columns: slice) -> None:
        rows = np.sort(torch.stack([vector[columns] for vector in vectors]).cpu().numpy(), axis=0)
        out[columns] = _weighted_sum(torch.from_numpy(rows[kept]).to(out.device).unbind(), weights)

    by_columns(part, len(out), GATHERED)
    return out


def masked_mean(
    vectors: Sequence[Tensor], masks: Sequence[Tensor], weights: Sequence[float], otherwise: Tensor
) -> Tensor:
    """For each element the weighted mean `[N]` over the vectors that take part there; `otherwise` where none does.

    masks: n bool ones `[N]`, true where the vector takes part; weights: sum to 1. Where all take part it is
    `weighted_mean`, bit for bit.
    """
    out, whole = otherwise.clone(), reduce(add, weights)  # added like the shares; sum() would round less

    def part(columns: slice) -> None:
        chosen = [mask[columns] for mask in masks]
        total = _weighted_sum([vector[columns] * c for vector, c in zip(vectors, chosen, strict=True)], weights)
        share = _weighted_sum(chosen, weights).div_(whole)
        out[columns] = torch.where(share > 0, total / share, out[columns].to(torch.float64)).to(out.dtype)

    by_columns(part, len(out))
    return out


def group_means(vectors: Sequence[Tensor], groups: Tensor) -> list[Tensor]:
    """For each row of `groups` (bool `[n, n]`), the mean of the vectors it marks: n vectors `[N]`."""
    out, group = [torch.empty_like(vector) for vector in vectors], Groups(groups)

    def part(columns: slice) -> None:
        rows = group.gathered(vectors, columns)
        finite = bool(rows.sum().isfinite())
        for piece in rows.split(PIECE, dim=1):
            group.average(piece, finite)
        for target, row in zip(out, rows, strict=True):
            target[columns] = row

    by_columns(part, len(out[0]), GATHERED)
    return out


def masked_merge(vectors: Sequence[Tensor], masks: Tensor, groups: Tensor, weights: Sequence[float]) -> None:
    """In place of vector i: the mean of i's group where i's mask is 1, the weighted mean of all vectors elsewhere.

    vectors: n of `[N]`; masks: packed, uint8 `[n, ceil(N / 8)]`; groups: bool `[n, n]`, as in `group_means`. One pass
    over column chunks, because at 100 clients every n x N array in between would cost as much memory and time as the
    uploads themselves.
    """
    group, packed = Groups(groups), masks.cpu().numpy()

    def part(columns: slice) -> None:
        rows = group.gathered(vectors, columns)
        common = _weighted_sum(rows.unbind(), weights).to(rows.dtype)
        chosen = torch.from_numpy(unpacked(packed, columns)).to(rows.device)
        pieces = (whole.split(PIECE, dim=-1) for whole in (chosen, rows, common))
        for ones, own, others in zip(*pieces, strict=True):
            group.average(own)
            choose(ones, own, others, in_place=True)
        for target, row in zip(vectors, rows, strict=True):
            target[columns] = row

    by_columns(part, len(vectors[0]), GATHERED)


class Groups(local):
    """Means over groups of clients, chunk by chunk. groups: bool `[n, n]`, one group in each row.

    Chunks are gathered in memory that each thread takes once: fresh memory for every one would cost as much time.
    """

    def __init__(self, groups: Tensor) -> None:
        alone = (groups.sum(1) == 1) & groups.diagonal()
        self.together = (~alone).nonzero().flatten()
        members = groups[self.together].to(torch.float64)
        self.members = members.div_(members.sum(1, keepdim=True))
        self._rows = torch.empty(0, 0)

    def gathered(self, vectors: Sequence[Tensor], columns: slice) -> Tensor:
        """The columns of all vectors `[n, c]`. Valid until the next call."""
        shape = len(vectors), columns.stop - columns.start
        if self._rows.shape != shape:
            self._rows = vectors[0].new_empty(shape)
            self.together, self.members = self.together.to(self._rows.device), self.members.to(self._rows.device)
        return torch.stack([vector[columns] for vector in vectors], out=self._rows)

    def average(self, rows: Tensor, finite: bool = True) -> None:
        """In place of each row of `[n, c]` the mean of its group; a group of itself keeps its bits.

        finite: no number is infinite, as constant buffers may be: 0 times what another row holds would not be 0.
        """
        if not len(self.together):
            return
        exact = rows.to(torch.float64)
        if finite:
            means = product(self.members, exact)
        else:
            means = torch.stack([members[members > 0] @ exact[members > 0] for members in self.members])
        if len(means) == len(rows):
            rows.copy_(means)
        else:
            rows[self.together] = means.to(rows.dtype)


def product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`, float64. On a CPU by NumPy, whose library asks the processor itself what it can do."""
    if left.device.type != "cpu":
        return left @ right
    return torch.from_numpy(left.numpy() @ right.numpy())


def _weighted_sum(rows: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Float64 `[c]`, added in the order of the rows."""
    total = torch.zeros_like(rows[0], dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        total.add_(row, alpha=weight)
    return total


def dot_products(vectors: Sequence[Tensor]) -> Tensor:
    """Float64 `[n, n]`, symmetric to the bit: the inner products of n vectors `[N]`.

    Chunks are multiplied in the vectors' own type, which takes a third of the time of float64, and relative to the
    first vector, so that distances of close vectors keep their digits; chunks are added in order in float64.
    """
    parts: dict[int, Tensor] = {}

    def part(columns: slice) -> None:
        first, *_ = rows = torch.stack([vector[columns] for vector in vectors]).cpu()
        moved = rows - first
        inner, along = (moved @ moved.T).to(torch.float64), (moved @ first).to(torch.float64)
        parts[columns.start] = inner + along[:, None] + along + first.to(torch.float64).square().sum()

    by_columns(part, len(vectors[0]), PRODUCTS)
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for start in sorted(parts):
        total += parts[start]
    return total.triu() + total.triu(1).T


def mixtures(vectors: Sequence[Tensor], weights: Tensor, out: Sequence[Tensor]) -> None:
    """Into `out[i]`: `sum_j weights[i, j] vectors[j]`, float64 inside. weights: `[n, n]`; out: apart from vectors."""
    weights = weights.to(vectors[0].device, torch.float64)

    def part(columns: slice) -> None:
        rows = weights.new_empty(len(vectors), columns.stop - columns.start)
        for row, vector in zip(rows, vectors, strict=True):
            row.copy_(vector[columns])  # casts on the way, which saves a pass over memory, as the next one does
        for target, mixed in zip(out, product(weights, rows), strict=True):
            target[columns] = mixed

    by_columns(part, len(vectors[0]), PRODUCTS)


def elementwise_max(vectors: Sequence[Tensor]) -> Tensor:
    """The largest value of each entry: how counters are joined."""
    out = vectors[0].clone()
    for vector in vectors[1:]:
        torch.maximum(out, vector, out=out)
    return out
