"""What pFedFDA's head is computed from: Gaussians of features, their discriminant, and how well a mixture does.

Symmetric matrices are float64, and of them the upper triangle alone is computed and read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.linalg.blas import dsymm, dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs, dsysv, dtpttr, dtrttp
from threadpoolctl import ThreadpoolController
from torch import Tensor

one_thread = ThreadpoolController().wrap(limits=1, user_api="blas")
"""For what NumPy and SciPy add up: sums differ with the number of threads."""

Rows = tuple[Tensor, Tensor]
"""Features `[n, H]` and their labels."""


class Gaussians(NamedTuple):
    """Class means `[C, H]` and the covariance `[H, H]` that they share, float64, upper triangle."""

    means: Tensor
    covariance: Tensor


class Moments(NamedTuple):
    """Of rows of features by class: counts `[C, 1]`, means `[C, H]` and `squares` about these `[H, H]`, float64.

    Those of all rows follow from those of parts, so every row is squared once whatever folds it is in.
    """

    counts: Tensor
    means: Tensor
    scatter: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> "Moments":
        """features: `[n, H]`, float64."""
        counts = labels.bincount(minlength=classes).to(features.dtype)[:, None]
        means = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
        means /= counts.clamp(min=1)
        return cls(counts, means, squares(features - means[labels]))


def label_prior(labels: Tensor, classes: int, eps: float) -> Tensor:
    """pi `[C]`, float64: the shares of the classes, none of them 0."""
    shares = labels.bincount(minlength=classes).to(torch.float64) / len(labels) + eps
    return shares / shares.sum()


def statistics(moments: Sequence[Moments], fallback: Tensor, least: int, offset: float, ridge: float) -> Gaussians:
    """Of all rows: means by class, `fallback` `[C, H]` for classes of no more than `least` rows, and the covariance."""
    counts, centres = (torch.stack([part[k] for part in moments]) for k in range(2))
    rows = counts.sum(0)
    freedom = max(int(rows.sum()) - 1, 1)
    means = torch.where(rows > least, (counts / rows.clamp(min=1) * centres).sum(0), fallback)
    # Squares about other means than their own: the distance of the two, as often as there are rows. One more row of
    # equal numbers is the offset.
    away = (counts.sqrt() * (centres - means)).flatten(0, 1)
    away = torch.cat([away, torch.full_like(means[:1], (offset * freedom) ** 0.5)])
    covariance = squares(away, 1 / freedom)
    for part in moments:
        if part.counts.any():
            covariance.add_(part.scatter, alpha=1 / freedom)
    covariance.diagonal().add_(ridge)
    return Gaussians(means, covariance)


def squares(rows: Tensor, scale: float = 1.0) -> Tensor:
    """scale * rows.T @ rows `[H, H]`, upper triangle."""
    # LAPACK's matrices are stored by columns: its lower triangle is the upper one of the same memory read by rows.
    return torch.from_numpy(dsyrk(scale, rows.numpy().T, lower=True).T)


def mixed(betas: Sequence[float], local: Gaussians, common: Gaussians) -> Gaussians:
    """beta times the local plus 1 - beta times the global statistics; betas: of means and covariance."""
    return Gaussians(*(torch.lerp(other, own, b) for b, own, other in zip(betas, local, common, strict=True)))


@one_thread
def discriminant(gaussians: Gaussians, eps: float) -> tuple[Tensor, Tensor]:
    """A `[C, H]` of the linear discriminant analysis of statistics, shrunk, and its b `[C]` but for the prior.

    Not numbers where it has no solution.
    """
    means = gaussians.means.numpy()
    slopes = inverse(lambda: shrunk(gaussians, eps).covariance)(means)
    return torch.from_numpy(slopes), torch.from_numpy(offsets_of(slopes, means))


def offsets_of(slopes: np.ndarray, means: np.ndarray) -> np.ndarray:
    """b `[C]` but for the prior, for A and means `[C, H]`."""
    return -0.5 * (means * slopes).sum(1)


def shrunk(gaussians: Gaussians, eps: float) -> Gaussians:
    """With (1 - eps) covariance + eps trace / H identity in place of the covariance."""
    matrix = (1 - eps) * gaussians.covariance
    matrix.diagonal().add_(eps * gaussians.covariance.trace() / len(matrix))
    return Gaussians(gaussians.means, matrix)


def inverse(make: Callable[[], Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    """What multiplies rows `[C, H]` by the inverse of a matrix `[H, H]`, which is written over.

    make: gives the matrix, once more where it is not positive definite.
    """
    # SciPy's LAPACK: PyTorch's takes twice to three times as long on processors that MKL was not made for.
    factor, failed = dpotrf(make().numpy().T, lower=True, clean=False, overwrite_a=True)
    if not failed:
        return lambda rows: dpotrs(factor, rows.T, lower=True)[0].T
    matrix = make().numpy().T

    def solved(rows: np.ndarray) -> np.ndarray:
        *_, found, failed = dsysv(matrix, rows.T, lower=True)
        return np.full_like(rows, np.nan) if failed else found.T

    return solved


def split(features: Tensor, labels: Tensor, folds: int, classes: int) -> list[Rows]:
    """The folds, rows dealt to them in turn class by class, and at the end the rows of rare classes.

    There are no folds where no class has as many rows as there are to be folds.
    """
    member = F.one_hot(labels, classes)
    place = member.cumsum(0).gather(1, labels[:, None])[:, 0] - 1
    enough = member.sum(0) >= folds
    place = torch.where(enough[labels], place % folds, folds)
    return [(features[place == fold], labels[place == fold]) for fold in range(0 if enough.any() else folds, folds + 1)]


class Fold(NamedTuple):
    """What a fold is validated with: the way from global to local statistics, and its samples."""

    means: np.ndarray
    covariance: Tensor
    features: np.ndarray
    member: np.ndarray
    room: Tensor  # [H, H] to write to

    @classmethod
    def of(cls, start: Gaussians, end: Gaussians, features: Tensor, labels: Tensor) -> "Fold":
        """start, end: shrunk, which is linear: mixed ones are shrunk too. The covariance of `end` is written over."""
        member = F.one_hot(labels, len(start.means)).to(features.dtype).numpy()
        room = torch.empty_like(end.covariance)
        way = end.covariance.sub_(start.covariance)
        return cls((end.means - start.means).numpy(), way, features.numpy(), member, room)


def validation(x: np.ndarray, folds: Sequence[Fold], start: Gaussians, prior: Tensor) -> tuple[float, np.ndarray]:
    """Sum over the folds of the held-out cross-entropy of heads mixed with weights x (one or two), and its gradient.

    start: the shrunk global statistics, at x = 0.
    """
    total, gradient, log_prior = 0.0, np.zeros(2), prior.log().numpy()
    for to in folds:
        means = start.means.numpy() + x[0] * to.means
        solved = inverse(partial(torch.add, start.covariance, to.covariance, alpha=float(x[-1]), out=to.room))
        slopes = solved(means)
        logits = to.features @ slopes.T + offsets_of(slopes, means) + log_prior
        shares = torch.from_numpy(logits).log_softmax(1).numpy()
        total -= (shares * to.member).sum() / len(logits)
        # Backwards by hand, with the same factor of the covariance.
        of_logits = (np.exp(shares) - to.member) / len(logits)
        of_offsets = of_logits.sum(0)[:, None]
        through = solved(of_logits.T @ to.features - 0.5 * of_offsets * means)
        of_means = through - 0.5 * of_offsets * slopes
        along = dsymm(1.0, to.covariance.numpy().T, slopes.T, lower=True).T
        gradient += [(of_means * to.means).sum(), -(through * along).sum()]
    return total, gradient if len(x) == 2 else gradient.sum(keepdims=True)


def packed(symmetric: Tensor) -> Tensor:
    """The upper triangle `[H (H + 1) / 2]` of a matrix, row by row."""
    return torch.from_numpy(dtrttp(symmetric.numpy().T, uplo="L")[0]).to(symmetric.dtype)


def unpacked(upper: Tensor, width: int) -> Tensor:
    """The matrix `[H, H]`, float64, with this upper triangle and zeros below it."""
    return torch.from_numpy(dtpttr(width, upper.numpy(), uplo="L")[0].T)
