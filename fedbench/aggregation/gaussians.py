"""The inputs of pFedFDA's head: Gaussians of features, and their linear discriminant.

Symmetric matrices are float64, and only their upper triangle is computed and read.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs, dsysv, dtpttr, dtrttp
from threadpoolctl import threadpool_limits
from torch import Tensor

one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""One thread for NumPy and SciPy, whose sums differ with the number of threads."""


class Gaussians(NamedTuple):
    """Class means `[C, H]` and their shared covariance `[H, H]`, float64, upper triangle."""

    means: Tensor
    covariance: Tensor


class Moments(NamedTuple):
    """Counts `[C, 1]`, means `[C, H]` and `squares` about these `[H, H]` of features by class, float64.

    The moments of all rows follow from those of parts, so every row is squared once.
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
    """Statistics of all rows: the covariance and class means, `fallback` `[C, H]` for classes of <= `least` rows."""
    counts, centres = (torch.stack([part[k] for part in moments]) for k in range(2))
    rows = counts.sum(0)
    freedom = max(int(rows.sum()) - 1, 1)
    means = torch.where(rows > least, (counts / rows.clamp(min=1) * centres).sum(0), fallback)
    # Squares about other means than their own add the distance of the two, times the number of rows. One more row of
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


def mixed_gaussians(betas: Sequence[float], local: Gaussians, common: Gaussians) -> Gaussians:
    """beta times the local plus 1 - beta times the global statistics; betas: of means and covariance."""
    return Gaussians(*(torch.lerp(other, own, b) for b, own, other in zip(betas, local, common, strict=True)))


@one_thread
def discriminant(gaussians: Gaussians, eps: float) -> tuple[Tensor, Tensor]:
    """A `[C, H]` of the linear discriminant analysis of shrunk statistics, and its b `[C]` without the prior.

    NaN if there is no solution.
    """
    means = gaussians.means.numpy()
    slopes = inverse(lambda: shrink(gaussians, eps).covariance)(means)
    return torch.from_numpy(slopes), torch.from_numpy(offsets_of(slopes, means))


def offsets_of(slopes: np.ndarray, means: np.ndarray) -> np.ndarray:
    """b `[C]` without the prior, for A and means `[C, H]`."""
    return -0.5 * (means * slopes).sum(1)


def shrink(gaussians: Gaussians, eps: float) -> Gaussians:
    """The statistics with the covariance (1 - eps) covariance + eps trace / H identity."""
    matrix = (1 - eps) * gaussians.covariance
    matrix.diagonal().add_(eps * gaussians.covariance.trace() / len(matrix))
    return Gaussians(gaussians.means, matrix)


def inverse(make: Callable[[], Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    """A function that multiplies rows `[C, H]` by the inverse of a matrix `[H, H]`, which is overwritten.

    make: returns the matrix; it is called again if the matrix is not positive definite.
    """
    # SciPy's LAPACK: PyTorch's takes two to three times as long on processors that MKL does not target.
    factor, failed = dpotrf(make().numpy().T, lower=True, clean=False, overwrite_a=True)
    if not failed:
        return lambda rows: dpotrs(factor, rows.T, lower=True)[0].T
    matrix = make().numpy().T

    def solve(rows: np.ndarray) -> np.ndarray:
        *_, solution, failed = dsysv(matrix, rows.T, lower=True)
        return np.full_like(rows, np.nan) if failed else solution.T

    return solve


def packed_triangle(symmetric: Tensor) -> Tensor:
    """The upper triangle `[H (H + 1) / 2]` of a matrix, row by row."""
    return torch.from_numpy(dtrttp(symmetric.numpy().T, uplo="L")[0]).to(symmetric.dtype)


def unpacked_triangle(upper: Tensor, width: int) -> Tensor:
    """The matrix `[H, H]`, float64, with this upper triangle and zeros below it."""
    return torch.from_numpy(dtpttr(width, upper.numpy(), uplo="L")[0].T)
