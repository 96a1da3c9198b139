"""Means of vectors: for all, per client, or per element.

Sums run in ascending client order in float64 and are cast once, so results depend neither on the order of arrival nor
on the number of hosts.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from threading import local

import numpy as np
import torch
from torch import Tensor

from fedbench.aggregation.columns import GATHERED, PIECE, PRODUCTS, by_columns, sum_by_columns
from fedbench.aggregation.packed import unpack_columns
from fedbench.module.masks import choose


def normalise(weights: Sequence[float]) -> list[float]:
    """Scales weights to sum 1."""
    total = float(sum(weights))
    return [weight / total for weight in weights]


def weighted_mean(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`sum_i weights_i * vectors_i` `[N]`, computed in float64; does not normalise the weights (see `normalise`)."""
    if len(vectors) == 1 and weights[0] == 1:
        return vectors[0] + 0  # as below, where -0 becomes 0

    out = torch.empty_like(vectors[0])

    def part(columns: slice) -> None:
        out[columns] = _weighted_sum([vector[columns] for vector in vectors], weights)

    by_columns(part, len(out))
    return out


def mean(vectors: Sequence[Tensor]) -> Tensor:
    """The plain mean `[N]`."""
    return weighted_mean(vectors, [1 / len(vectors)] * len(vectors))


def trimmed_mean(vectors: Sequence[Tensor], cut: int) -> Tensor:
    """The elementwise mean `[N]` without the `cut` smallest and the `cut` largest values.

    Sorted with NumPy, which takes a fifteenth of torch's time.
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
    """The elementwise weighted mean `[N]` over the vectors whose mask is true; `otherwise` if there are none.

    masks: n bool masks `[N]`; weights: sum to 1. If all masks are true, the result equals `weighted_mean` to the bit.
    """
    out, whole = otherwise.clone(), reduce(add, weights)  # added like the shares; sum() would round differently

    def part(columns: slice) -> None:
        chosen = [mask[columns] for mask in masks]
        total = _weighted_sum([vector[columns] * c for vector, c in zip(vectors, chosen, strict=True)], weights)
        share = _weighted_sum(chosen, weights).div_(whole)
        out[columns] = torch.where(share > 0, total / share, out[columns].to(torch.float64)).to(out.dtype)

    by_columns(part, len(out))
    return out


def mask_weights(masks: Sequence[Tensor], weights: Sequence[float], like: Tensor) -> Tensor:
    """The summed weight `[N]` of the vectors whose mask is true, in the type of `like`; by `masked_mean`'s rules."""
    out = torch.empty_like(like)

    def part(columns: slice) -> None:
        out[columns] = _weighted_sum([mask[columns] for mask in masks], weights).to(out.dtype)

    by_columns(part, len(out))
    return out


def group_means(vectors: Sequence[Tensor], groups: Tensor) -> list[Tensor]:
    """The mean of the vectors marked in each row of `groups` (bool `[n, n]`): n vectors `[N]`."""
    out, group = [torch.empty_like(vector) for vector in vectors], Groups(groups)

    def part(columns: slice) -> None:
        rows = group.gather(vectors, columns)
        finite = bool(rows.sum().isfinite())
        for piece in rows.split(PIECE, dim=1):
            group.average(piece, finite)
        for target, row in zip(out, rows, strict=True):
            target[columns] = row

    by_columns(part, len(out[0]), GATHERED)
    return out


def masked_merge(vectors: Sequence[Tensor], masks: Tensor, groups: Tensor, weights: Sequence[float]) -> None:
    """Replaces vector i by the mean of i's group where i's mask is 1, and by the weighted mean of all elsewhere.

    vectors: n of `[N]`; masks: packed, uint8 `[n, ceil(N / 8)]`; groups: bool `[n, n]`, as in `group_means`. Makes one
    pass over column chunks, because with 100 clients each intermediate n x N array would cost as much memory and time
    as the uploads.
    """
    group, packed = Groups(groups), masks.cpu().numpy()

    def part(columns: slice) -> None:
        rows = group.gather(vectors, columns)
        common = _weighted_sum(rows.unbind(), weights).to(rows.dtype)
        chosen = torch.from_numpy(unpack_columns(packed, columns)).to(rows.device)
        pieces = (whole.split(PIECE, dim=-1) for whole in (chosen, rows, common))
        for ones, own, others in zip(*pieces, strict=True):
            group.average(own)
            choose(ones, own, others, in_place=True)
        for target, row in zip(vectors, rows, strict=True):
            target[columns] = row

    by_columns(part, len(vectors[0]), GATHERED)


class Groups(local):
    """Means over groups of clients in chunks. groups: bool `[n, n]`, one group per row.

    Each thread allocates the memory for chunks once: allocating it again would take as long as the computation.
    """

    def __init__(self, groups: Tensor) -> None:
        alone = (groups.sum(1) == 1) & groups.diagonal()
        self.together = (~alone).nonzero().flatten()
        members = groups[self.together].to(torch.float64)
        self.members = members.div_(members.sum(1, keepdim=True))
        self._rows = torch.empty(0, 0)

    def gather(self, vectors: Sequence[Tensor], columns: slice) -> Tensor:
        """The columns of all vectors `[n, c]`. Valid until the next call."""
        shape = len(vectors), columns.stop - columns.start
        if self._rows.shape != shape:
            self._rows = vectors[0].new_empty(shape)
            self.together, self.members = self.together.to(self._rows.device), self.members.to(self._rows.device)
        return torch.stack([vector[columns] for vector in vectors], out=self._rows)

    def average(self, rows: Tensor, finite: bool = True) -> None:
        """Replaces each row of `[n, c]` by the mean of its group; a group of one keeps its bits.

        finite: no number is infinite, as constant buffers may be: 0 times infinity would not be 0.
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
    """`left @ right`, float64; on a CPU with NumPy, whose library detects the processor's features."""
    if left.device.type != "cpu":
        return left @ right
    return torch.from_numpy(left.numpy() @ right.numpy())


def _weighted_sum(rows: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Float64 `[c]`, summed in row order."""
    total = torch.zeros_like(rows[0], dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        total.add_(row, alpha=weight)
    return total


def dot_products(vectors: Sequence[Tensor]) -> Tensor:
    """The inner products of n vectors `[N]`: float64 `[n, n]`, exactly symmetric.

    Chunks are multiplied in the vectors' own type, which takes a third of the time of float64, and relative to the
    first vector, so that distances of close vectors stay accurate; chunks are summed in order in float64.
    """

    def part(columns: slice) -> Tensor:
        first, *_ = rows = torch.stack([vector[columns] for vector in vectors]).cpu()
        moved = rows - first
        inner, along = (moved @ moved.T).to(torch.float64), (moved @ first).to(torch.float64)
        return inner + along[:, None] + along + first.to(torch.float64).square().sum()

    zeros = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    total = sum_by_columns(part, zeros, len(vectors[0]), PRODUCTS)
    return total.triu() + total.triu(1).T


def mixtures(vectors: Sequence[Tensor], weights: Tensor, out: Sequence[Tensor]) -> None:
    """Writes `sum_j weights[i, j] vectors[j]` to `out[i]`, computed in float64. weights: `[n, n]`; out: no vectors."""
    weights = weights.to(vectors[0].device, torch.float64)

    def part(columns: slice) -> None:
        rows = weights.new_empty(len(vectors), columns.stop - columns.start)
        for row, vector in zip(rows, vectors, strict=True):
            row.copy_(vector[columns])  # casts while copying, which saves a pass over memory; so does the next line
        for target, mixed in zip(out, product(weights, rows), strict=True):
            target[columns] = mixed

    by_columns(part, len(vectors[0]), PRODUCTS)


def elementwise_max(vectors: Sequence[Tensor]) -> Tensor:
    """The largest value of each entry, for joining counters."""
    out = vectors[0].clone()
    for vector in vectors[1:]:
        torch.maximum(out, vector, out=out)
    return out
