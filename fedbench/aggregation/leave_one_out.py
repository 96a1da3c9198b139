"""A client's contribution: the mean without it, and the deviation of its update from that mean."""

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

import torch
from torch import Tensor

from fedbench.aggregation.columns import GATHERED, sum_by_columns
from fedbench.aggregation.means import normalise

LEAST_SCORE = 1e-9
"""Sum of scores below which they are rounding errors of 0."""
SOLE = 1 - 1e-4
"""Weight in the mean of an entry from which nobody else is left in it."""


def cut_alike(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Vectors `[N]` cut into equal pieces whose float64 copies stay in a core's cache."""
    return zip(*(vector.split(2**15) for vector in vectors), strict=True)


def leave_out(whole: Tensor, own: Tensor, share: float) -> Tensor:
    """Float64 `[N]`: a weighted mean without one vector that entered it with weight `share` < 1."""
    return whole.double().sub(own.double(), alpha=share).div_(1 - share)


def leave_out_sent(whole: Tensor, own: Tensor, share: float, total: Tensor, sent: Tensor) -> Tensor:
    """Float64 `[N]`: a mean over those who sent an entry, without one vector, where that is in it.

    whole: the mean; own: the vector; share: its weight; total: the summed weight `[N]` of those who sent an entry;
    sent: bool `[N]`, where the vector was sent. There it entered with weight share / total. Elsewhere, and where nobody
    else sent an entry, the mean stays.
    """
    weight = torch.where(sent, share / total.double(), 0.0)
    weight = torch.where(weight < SOLE, weight, 0.0)
    return (whole.double() - weight * own.double()).div_(1 - weight)


def deviation(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """1 - cosine, in [0, 2], of two vectors given as pairs of pieces; 1 if a vector is 0 (eq. 8)."""
    doubled = ((update.double(), others) for update, others in pairs)
    products = [torch.stack([u @ o, u @ u, o @ o]) for u, o in doubled]
    return one_minus_cosine(*torch.stack(products).sum(0).tolist())


def deviations(start: Tensor, sent: Sequence[Tensor], masks: Sequence[Tensor]) -> list[float]:
    """1 - cosine, in [0, 2], of each client's update and the others' mean update, over the entries that it sent.

    start: `[N]`, the common start; sent: n vectors `[N]`; masks: n bool ones, true where a client sent. The mean of an
    entry is over the others who sent it, and 0 if nobody did.
    """
    if not len(start):
        return [1.0] * len(sent)

    def part(columns: slice) -> Tensor:
        known = torch.stack([mask[columns] for mask in masks]).double()  # [n, c]
        own = torch.stack([start[columns].double() - vector[columns] for vector in sent]).mul_(known)
        others = (own.sum(0) - own).div_((known.sum(0) - known).clamp_(min=1)).mul_(known)
        return torch.stack([(a * b).sum(1) for a, b in ((own, others), (own, own), (others, others))])

    products = sum_by_columns(part, torch.zeros(3, len(sent), dtype=torch.float64), len(start), GATHERED)
    return [one_minus_cosine(*column) for column in products.T.tolist()]


def one_minus_cosine(product: float, square: float, other: float) -> float:
    """1 - cosine from the inner product and the squared norms; 1 if a vector is 0."""
    norms = sqrt(square) * sqrt(other)
    cosine = product / norms if norms else 0.0
    return 1 - min(1.0, max(-1.0, cosine))


def contribution_weights(scores: Sequence[float]) -> list[float]:
    """Weights in proportion to the clients' scores >= 0 (eq. 10); uniform if all are 0."""
    return normalise(scores if sum(scores) > LEAST_SCORE else [1.0] * len(scores))
