"""Deterministic clustering of clients by their uploads."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def k_means(points: Sequence[Tensor], clusters: int, most: int) -> tuple[list[int], list[Tensor]]:
    """The cluster of every point and the centres, float64, by Lloyd's algorithm with at most `most` assignments.

    Starts from the first point, then repeatedly adds the point farthest from the centres so far. Ties go to the
    smallest index; a cluster without points keeps its centre.
    """
    centres = farthest_first(points, min(clusters, len(points)))
    assigned: list[int] = []
    for _ in range(most):
        before, assigned = assigned, [nearest_centre(point, centres) for point in points]
        if assigned == before:
            break
        for cluster in set(assigned):
            members = [point for point, number in zip(points, assigned, strict=True) if number == cluster]
            centres[cluster] = sum(members, torch.zeros_like(centres[0])) / len(members)
    return assigned, centres


def farthest_first(points: Sequence[Tensor], count: int) -> list[Tensor]:
    """`count` points, float64: the first, then repeatedly the one farthest from those chosen."""
    chosen = [points[0].to(torch.float64)]
    gap = np.full(len(points), np.inf)
    while len(chosen) < count:
        gap = np.minimum(gap, [squared_distance(point, chosen[-1]) for point in points])
        chosen.append(points[int(gap.argmax())].to(torch.float64))
    return [centre.clone() for centre in chosen]


def nearest_centre(point: Tensor, centres: Sequence[Tensor]) -> int:
    """The nearest centre; ties go to the first."""
    return int(np.argmin([squared_distance(point, centre) for centre in centres]))


def squared_distance(a: Tensor, b: Tensor) -> float:
    # NumPy, because the order of torch's sums depends on the number of threads.
    return float(np.square(a.numpy().astype(np.float64) - b.numpy()).sum())
