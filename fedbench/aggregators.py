"""Pure functions on vectors: how uploads become one vector, or one for each client.

Sums run in ascending client order over float64 and are cast once, so that no result depends on the order of arrival
or on the number of hosts.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cache, reduce
from math import ceil, floor
from operator import add
from os import cpu_count
from threading import local
from typing import Literal

import numpy as np
import torch
from scipy.optimize import nnls
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fedbench.bits import choose, places

# Not powers of two: rows so far apart fall into the same few lines of a cache, and a product takes up to twice as long.
COLUMNS = 64_000
GATHERED = 22_000
"""Columns of a chunk where all clients' rows are held at once: 9 MB for 100 clients. Eight to a byte."""

PIECE = 2_000
"""Columns of a part of such a chunk that stays in a core's cache from one operation to the next."""

PRODUCTS = 8_000
"""Columns of a chunk that is read, multiplied and written row by row: narrower ones cost more calls than they save."""


_libraries = ThreadpoolController()
"""Those that NumPy and SciPy compute with, which would start threads of their own in every one of ours."""


def by_columns(work: Callable[[slice], None], size: int, columns: int = COLUMNS) -> None:
    """Run `work` on column ranges side by side, each on one core.

    Chunks have a fixed size, so bits depend neither on the number of cores nor on the caller's threads, which matter to
    a matrix product even of a single chunk.
    """
    chunks = [slice(start, min(start + columns, size)) for start in range(0, size, columns)]
    with _libraries.limit(limits=1, user_api="blas"):
        list(_pool(cpu_count() or 1).map(work, chunks))


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    """Threads of one core each, kept: every new thread would keep memory of its own."""
    return ThreadPoolExecutor(cores, initializer=use_one_core)


def use_one_core() -> None:
    """For this thread. PyTorch reads the number at a thread's first work, when another thread may have changed it."""
    torch.set_num_threads(1)
    torch.get_num_threads()


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


def simplex_minimum(matrix: np.ndarray, tolerance: float = 1e-12) -> np.ndarray:
    """argmin of a' P a over a >= 0, sum(a) = 1, float64 `[n]`; of several the one of least Euclidean norm.

    matrix: P `[n, n]`, positive semidefinite; eigenvalues below `tolerance` of its largest entry count as 0.
    The ray through the answer solves the non-negative least squares of [P^(1/2); 1'] a = [0; 1]. Raises
    numpy.linalg.LinAlgError, RuntimeError or ValueError where that fails.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    scale = np.abs(matrix).max()
    kept = values > tolerance * scale
    rows = np.vstack([(vectors[:, kept] * np.sqrt(values[kept] / (scale or 1))).T, np.ones(len(matrix))])
    found, _ = nnls(rows, np.append(np.zeros(len(rows) - 1), 1.0))
    found /= found.sum()
    _, sizes, directions = np.linalg.svd(rows)
    # [n, directions that change neither sum nor value]; the last row may follow from the others.
    free = directions[np.count_nonzero(sizes > 1e-9) :].T
    if free.size:
        fixed = found - free @ (free.T @ found)
        found = np.maximum(0, fixed + free @ least_distance(free, -fixed - tolerance / 10))
    return found / found.sum()


def least_distance(rows: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The shortest x with rows @ x >= bounds, which some x fulfils (Lawson and Hanson 1974, ch. 23)."""
    target = np.append(np.zeros(rows.shape[1]), 1.0)
    matrix = np.vstack([rows.T, bounds])
    residual = matrix @ nnls(matrix, target)[0] - target
    return -residual[:-1] / residual[-1]


def bits_to_mask(bits: Tensor, size: int) -> Tensor:
    """bool `[size]` of a mask packed eight to a byte (`mask_to_bits`)."""
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), count=size).view(bool))


def mask_to_bits(mask: Tensor) -> Tensor:
    """uint8 `[ceil(N / 8)]`: a bool mask `[N]` packed eight to a byte."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy()))


def unpacked(packed: np.ndarray, columns: slice) -> np.ndarray:
    """0 and 1 in bytes `[n, c]`: these columns, from a multiple of 8 on, of n packed masks."""
    part = packed[:, columns.start // 8 : -(-columns.stop // 8)]
    return np.unpackbits(part, axis=1, count=columns.stop - columns.start)


def mask_overlaps(masks: Tensor) -> Tensor:
    """int64 `[n, n]`: how many ones each two masks have in common; the diagonal counts a mask's ones.

    masks: packed, uint8 `[n, bytes]`, with 0 in the padding.
    """
    packed, parts = masks.cpu().numpy(), list[np.ndarray]()
    by_columns(lambda columns: parts.append(_common(packed[:, columns])), packed.shape[1], 1 << 14)
    return torch.from_numpy(sum(parts, np.zeros((len(masks), len(masks)), np.int64)))


def _common(packed: np.ndarray) -> np.ndarray:
    """Counted in words of eight bytes."""
    size, width = packed.shape
    padded = np.zeros((size, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = packed
    words, counts = padded.view(np.uint64), np.zeros((size, size), np.int64)
    for i, row in enumerate(words):
        counts[i, i:] = np.bitwise_count(words[i:] & row).sum(1, dtype=np.uint32)  # int64 is slower
    return counts + np.triu(counts, 1).T


def mask_counts(masks: Tensor, size: int) -> np.ndarray:
    """int64 `[size]`: how many of the packed masks, uint8 `[n, ceil(size / 8)]`, are 1 at each element."""
    out, packed = np.zeros(size, np.int64), masks.cpu().numpy()

    def part(columns: slice) -> None:
        bits = unpacked(packed, columns)
        for start in range(0, len(bits), 255):  # sums of 255 bits fit a byte, which is fastest
            out[columns] += bits[start : start + 255].sum(0, dtype=np.uint8)

    by_columns(part, size, GATHERED)
    return out


def largest(scores: Tensor, count: int, among: Tensor | None = None) -> Tensor:
    """bool `[n]`: exactly `count` largest scores; of equal ones the lower index first. among: bool `[n]`, of these."""
    if among is not None:
        index = places(among)
        return torch.zeros_like(among).scatter_(0, index, largest(scores.index_select(0, index), count))
    if count <= 0 or count >= len(scores):
        return torch.full(scores.shape, count > 0, device=scores.device)
    if scores.device.type != "cpu":
        mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        mask[scores.sort(descending=True, stable=True).indices[:count]] = True
        return mask
    values = scores.numpy()
    # NumPy's partition is vectorised: 1 ms for a million floats, where topk takes 15 and a sort 100. Half of it goes
    # without floats: those above zero have the order of their bits, and all others are below them.
    bits = values.view(f"i{values.itemsize}")
    least = np.partition(bits, -count)[-count]
    if least > 0:
        values = bits
    else:
        least = np.partition(values, -count)[-count]
    chosen = values >= least
    surplus = np.count_nonzero(chosen) - count
    if surplus:
        chosen[np.flatnonzero(values == least)[-surplus:]] = False
    return torch.from_numpy(chosen)


def min_max(values: Tensor) -> Tensor:
    """Values `[n]` moved to [0, 1] by the least and the largest of them; all 0 where those are equal."""
    least, most = values.aminmax()
    return (values - least).div_(most - least) if most > least else torch.zeros_like(values)


def kth_smallest(values: Tensor, k: int) -> Tensor:
    """The k-th smallest value `[]`, counted from 1."""
    if values.device.type != "cpu":
        return values.kthvalue(k).values
    return torch.from_numpy(np.partition(values.numpy(), k - 1)[k - 1 : k])[0]


def quantile_rank(n: int, q: float, rule: Literal["inf", "linear"] = "inf") -> int:
    """Rank of the q-quantile of n values, from 1; q is read as the decimal that it prints as.

    rule: inf is the definition, the least value that at least a share q of all does not exceed, 0 (minus infinity) for
    q = 0; linear is the rank at which a linearly interpolated quantile starts.
    """
    share = Fraction(str(q))
    return ceil(share * n) if rule == "inf" else floor(share * (n - 1)) + 1


def above_quantile(values: Tensor, q: float, rule: Literal["inf", "linear"] = "inf") -> Tensor:
    """bool `[n]`: strictly above the q-quantile, which is one of the values; all for rank 0 (`quantile_rank`)."""
    k = quantile_rank(len(values), q, rule)
    return values > kth_smallest(values, k) if k else torch.ones_like(values, dtype=torch.bool)


def vote(ballots: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Scores `[samples, classes]`, float64: the weights `[samples]` of the clients whose ballot has a one there."""
    scores = torch.zeros(ballots[0].shape, dtype=torch.float64)
    for ballot, weight in zip(ballots, weights, strict=True):
        scores.addcmul_(weight.to(torch.float64)[:, None], ballot.to(torch.float64))
    return scores


def plurality(scores: Tensor, tolerance: float = 1e-9) -> Tensor:
    """For each row of `[samples, classes]` the lowest class within `tolerance` of the best score, int64."""
    best = scores.max(1, keepdim=True).values
    return (scores >= best - tolerance).to(torch.int64).argmax(1)
