"""Weighted votes on classes."""

from collections.abc import Sequence

import torch
from torch import Tensor

TOLERANCE = 1e-9
"""Difference of scores that counts as none: they are sums, which round."""


def vote(ballots: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Sums the clients' weights `[samples]` per class they vote for: scores `[samples, classes]`, float64."""
    scores = torch.zeros(ballots[0].shape, dtype=torch.float64)
    for ballot, weight in zip(ballots, weights, strict=True):
        scores.addcmul_(weight.to(torch.float64)[:, None], ballot.to(torch.float64))
    return scores


def plurality(scores: Tensor) -> Tensor:
    """The lowest class within `TOLERANCE` of the best score, for each row of `[samples, classes]`, int64."""
    best = scores.max(1, keepdim=True).values
    return (scores >= best - TOLERANCE).to(torch.int64).argmax(1)
