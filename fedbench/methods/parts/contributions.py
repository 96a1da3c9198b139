"""What a client contributes: the others' mean without it, and how far an update deviates from it."""

from collections.abc import Iterable, Iterator
from math import sqrt

import torch
from torch import Tensor


def cut_alike(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Vectors `[N]` cut alike, into pieces whose float64 copies stay in a core's cache."""
    return zip(*(vector.split(2**15) for vector in vectors), strict=True)


def leave_out(whole: Tensor, own: Tensor, share: float) -> Tensor:
    """Float64 `[N]`: a weighted mean without one vector that entered it with weight `share` < 1."""
    return whole.double().sub(own.double(), alpha=share).div_(1 - share)


def deviation(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """1 - cosine, in [0, 2], of two vectors given as pairs of pieces; 1 where a vector is 0 (eq. 8)."""
    doubled = ((update.double(), others) for update, others in pairs)
    products = [torch.stack([u @ o, u @ u, o @ o]) for u, o in doubled]
    product, *squares = torch.stack(products).sum(0).tolist()
    norms = sqrt(squares[0]) * sqrt(squares[1])
    cosine = product / norms if norms else 0.0
    return 1 - min(1.0, max(-1.0, cosine))
