"""Pure functions on vectors: how uploads become one vector, or one for each client.

Sums run in ascending client order over float64 and are cast once, so that no result depends on the order of arrival
or on the number of hosts.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

import numpy as np
import torch
from torch import Tensor

COLUMNS = 1 << 16


def by_columns(work: Callable[[slice], None], size: int) -> None:
    """Run `work` on column ranges side by side. Chunks have a fixed size, so bits do not depend on the cores."""
    chunks = [slice(start, min(start + COLUMNS, size)) for start in range(0, size, COLUMNS)]
    if len(chunks) < 2:
        for chunk in chunks:
            work(chunk)
        return
    with ThreadPoolExecutor(cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(work, chunks))


def normalised(weights: Sequence[float]) -> list[float]:
    """Weights that sum to 1."""
    total = float(sum(weights))
    return [weight / total for weight in weights]


def weighted_mean(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`sum_i weights_i * vectors_i` `[N]`, float64 inside; weights as they are (`normalised` makes them sum to 1)."""
    out = torch.empty_like(vectors[0])

    def part(columns: slice) -> None:
        total = torch.zeros(out[columns].shape, dtype=torch.float64, device=out.device)
        for vector, weight in zip(vectors, weights, strict=True):
            total.add_(vector[columns].to(torch.float64), alpha=weight)
        out[columns] = total

    by_columns(part, len(out))
    return out


def mean(vectors: Sequence[Tensor]) -> Tensor:
    """The plain mean `[N]`."""
    return weighted_mean(vectors, [1 / len(vectors)] * len(vectors))


def group_means(vectors: Sequence[Tensor], groups: Tensor) -> list[Tensor]:
    """For each row of `groups` (bool `[n, n]`), the mean of the vectors it marks: n vectors `[N]`."""
    weights = groups.to(torch.float64)
    weights = weights / weights.sum(1, keepdim=True)
    out = [torch.empty_like(vectors[0]) for _ in vectors]

    def part(columns: slice) -> None:
        stacked = torch.stack([vector[columns] for vector in vectors]).to(torch.float64)  # [n, c]
        means = (weights.to(stacked.device) @ stacked).to(vectors[0].dtype)
        for target, row in zip(out, means, strict=True):
            target[columns] = row

    by_columns(part, len(out[0]))
    return out


def elementwise_max(vectors: Sequence[Tensor]) -> Tensor:
    """The largest value of each entry: how counters are joined."""
    out = vectors[0].clone()
    for vector in vectors[1:]:
        torch.maximum(out, vector, out=out)
    return out


def bits_to_mask(bits: Tensor, size: int) -> Tensor:
    """bool `[size]` of a mask packed eight to a byte (`mask_to_bits`)."""
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), count=size).view(bool))


def mask_to_bits(mask: Tensor) -> Tensor:
    """uint8 `[ceil(N / 8)]`: a bool mask `[N]` packed eight to a byte."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy()))


def vote(labels: Sequence[Tensor], weights: Sequence[Tensor], classes: int) -> Tensor:
    """Scores `[samples, classes]`, float64: every client's weight added at its label (FedMosaic, step 5)."""
    scores = torch.zeros(len(labels[0]), classes, dtype=torch.float64)
    rows = torch.arange(len(labels[0]))
    for label, weight in zip(labels, weights, strict=True):
        scores[rows, label] += weight.to(torch.float64)
    return scores


def plurality(scores: Tensor, tolerance: float = 1e-9) -> Tensor:
    """For each row of `[samples, classes]` the lowest class within `tolerance` of the best score, int64."""
    best = scores.max(1, keepdim=True).values
    return (scores >= best - tolerance).to(torch.int64).argmax(1)
