"""Exact weighted sums in integers: their bits do not depend on the order or place of summation.

A term, weight times number, is rounded to a multiple of 2^-54 (5.6e-17), so N terms have an error of at most N * 2^-55.
Weights sum to at most 1, so a sum is at most the largest number, and 64 bits suffice for numbers below 2^8.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

SCALE, LIMIT = 2.0**54, 2.0**8

CHUNK = 1 << 18
"""Elements converted to integers at once on a CPU."""


def fits(vector: Tensor) -> bool:
    """Whether all numbers are finite and below the limit."""
    if not vector.numel():
        return True
    low, high = vector.aminmax()
    return bool((low > -LIMIT) & (high < LIMIT))


def add_term(total: Tensor, vector: Tensor, weight: float) -> None:
    """Adds `weight * vector` to a sum. total: int64, of the vector's shape; weight: in [0, 1]."""
    flat, sums = vector.detach().reshape(-1), total.view(-1)
    size = CHUNK if flat.device.type == "cpu" else max(1, len(flat))
    for start in range(0, len(flat), size):
        part = slice(start, start + size)
        term = flat[part].to(torch.float64, copy=True).mul_(weight * SCALE)
        sums[part].add_(term.round_().to(torch.int64))


def add_terms(total: Tensor, vectors: Sequence[Tensor], weights: Sequence[float]) -> list[bool]:
    """Adds `weight * vector` of every vector that fits, and says which do."""
    if total.device.type != "cpu" and len(vectors) > 1:
        return add_together(total, vectors, weights)
    fitting = [fits(vector) for vector in vectors]
    for vector, weight, is_fitting in zip(vectors, weights, fitting, strict=True):
        if is_fitting:
            add_term(total, vector, weight)
    return fitting


def add_together(total: Tensor, vectors: Sequence[Tensor], weights: Sequence[float]) -> list[bool]:
    """As `add_terms`, all at once: on a GPU, starting operations and waiting for results takes most of the time."""
    rows = torch.stack([vector.detach().reshape(-1) for vector in vectors])
    fitting = (rows.abs().amax(1) < LIMIT).tolist() if rows.numel() else [True] * len(vectors)
    indices = [index for index, is_fitting in enumerate(fitting) if is_fitting]
    scales = torch.tensor([weights[index] * SCALE for index in indices], dtype=torch.float64).to(rows.device)
    terms = (rows if all(fitting) else rows[indices]).to(torch.float64).mul_(scales[:, None]).round_()
    total.view(-1).add_(terms.to(torch.int64).sum(0))
    return fitting


def value(total: Tensor) -> Tensor:
    """The sum as float64."""
    return total.to(torch.float64).div_(SCALE)
