"""Weights of a client's own Gaussians against the global ones, by cross-validation on its samples (pFedFDA).

As in gaussians.py, symmetric matrices are float64, and only their upper triangle is computed and read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.linalg.blas import dsymm
from scipy.optimize import minimize
from torch import Tensor

from fedbench.aggregation.gaussians import (
    Gaussians,
    Moments,
    inverse,
    offsets_of,
    shrink,
)

Betas = tuple[float, float]
"""Weights of the local means and covariance."""

LabelledRows = tuple[Tensor, Tensor]
"""Features `[n, H]` and their labels."""


def make_folds(features: Tensor, labels: Tensor, folds: int, classes: int) -> list[LabelledRows]:
    """The folds in float64: rows are dealt in turn class by class, and rows of rare classes at the end.

    There are no folds if every class has fewer rows than the number of folds.
    """
    member = F.one_hot(labels, classes)
    fold_of = member.cumsum(0).gather(1, labels[:, None])[:, 0] - 1
    enough = member.sum(0) >= folds
    fold_of = torch.where(enough[labels], fold_of % folds, folds)
    parts = [fold_of == fold for fold in range(0 if enough.any() else folds, folds + 1)]
    return [(features[part].to(torch.float64), labels[part]) for part in parts]


class Fold(NamedTuple):
    """Validation of a fold: the line from global to local statistics, and its samples."""

    means: np.ndarray
    covariance: Tensor
    features: np.ndarray
    member: np.ndarray
    room: Tensor  # [H, H] to write to

    @classmethod
    def of(cls, start: Gaussians, end: Gaussians, features: Tensor, labels: Tensor) -> "Fold":
        """start, end: shrunk, which is linear: mixed ones are shrunk too. Overwrites the covariance of `end`."""
        member = F.one_hot(labels, len(start.means)).to(features.dtype).numpy()
        room = torch.empty_like(end.covariance)
        way = end.covariance.sub_(start.covariance)
        return cls((end.means - start.means).numpy(), way, features.numpy(), member, room)


def fold_held_out(
    folds: Sequence[LabelledRows],
    moments: Sequence[Moments],
    local: Callable[..., Gaussians],
    start: Gaussians,
    eps: float,
) -> list[Fold]:
    """The validation of every fold with statistics of the other folds.

    moments: of every fold; local: statistics of some folds; start: the shrunk global statistics.
    """
    rest = [local([*moments[:number], *moments[number + 1 :]]) for number in range(len(folds))]
    return [Fold.of(start, shrink(gaussians, eps), *held) for gaussians, held in zip(rest, folds, strict=True)]


def validation(x: np.ndarray, folds: Sequence[Fold], start: Gaussians, prior: Tensor) -> tuple[float, np.ndarray]:
    """Sum over the folds of the held-out cross-entropy of heads mixed with weights x (one or two), and its gradient.

    start: the shrunk global statistics, at x = 0.
    """
    total, gradient, log_prior = 0.0, np.zeros(2), prior.log().numpy()
    for to in folds:
        means = start.means.numpy() + x[0] * to.means
        solve = inverse(partial(torch.add, start.covariance, to.covariance, alpha=float(x[-1]), out=to.room))
        slopes = solve(means)
        logits = to.features @ slopes.T + offsets_of(slopes, means) + log_prior
        shares = torch.from_numpy(logits).log_softmax(1).numpy()
        total -= (shares * to.member).sum() / len(logits)
        # Backwards by hand, with the same factor of the covariance.
        of_logits = (np.exp(shares) - to.member) / len(logits)
        of_offsets = of_logits.sum(0)[:, None]
        through = solve(of_logits.T @ to.features - 0.5 * of_offsets * means)
        of_means = through - 0.5 * of_offsets * slopes
        along = dsymm(1.0, to.covariance.numpy().T, slopes.T, lower=True).T
        gradient += [(of_means * to.means).sum(), -(through * along).sum()]
    return total, gradient if len(x) == 2 else gradient.sum(keepdims=True)


def best_betas(
    folds: Sequence[Fold], start: Gaussians, prior: Tensor, single: bool, iterations: int, tolerance: float
) -> Betas | None:
    """The weights in [0, 1] that minimise `validation`; None if it is NaN, 0 without folds.

    single: one weight for both; tolerance: projected gradient at which the solver stops.
    """
    if not folds:
        return 0.0, 0.0
    unknowns = 1 if single else 2
    minimum = minimize(
        partial(validation, folds=folds, start=start, prior=prior),
        np.full(unknowns, 0.5),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, 1)] * unknowns,
        options={"maxiter": iterations, "gtol": tolerance},
    )
    finite = np.isfinite([minimum.fun, *minimum.x]).all()
    return (float(minimum.x[0]), float(minimum.x[-1])) if finite else None
