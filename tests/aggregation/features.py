"""Features of few samples and their Gaussians, for the tests of what is computed from them."""

import torch

from fedbench.aggregation.cross_validation import Fold, make_folds
from fedbench.aggregation.gaussians import (
    Gaussians,
    Moments,
    discriminant,
    label_prior,
    shrink,
    statistics,
)


def f64(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


F, Y = f64([[1, 0], [2, 1], [0, 1], [3, 2]]), torch.tensor([0, 0, 0, 1])


COMMON = Gaussians(f64([[0.5, 0.5], [1, 1]]), torch.eye(2, dtype=torch.float64))


def logits(gaussians, prior, features):
    slopes, offsets = head_of(gaussians, prior)
    return features @ slopes.T + offsets


def head_of(gaussians, prior):
    slopes, offsets = discriminant(gaussians, 1e-4)
    return slopes, offsets + prior.log()


def statistics_of(features, labels, fallback, *rest):
    return whole(statistics([Moments.of(features, labels, len(fallback))], fallback, *rest))


def whole(gaussians):
    """With both triangles of the covariance."""
    upper = gaussians.covariance.triu()
    return Gaussians(gaussians.means, upper + upper.triu(1).T)


def problem(seed=0, count=40, spread=1.0):
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=draw)
    z = torch.randn(count, 2, dtype=torch.float64, generator=draw) + spread * f64([[0, 0], [2, 0], [0, 2]])[y]
    common = Gaussians(torch.rand(3, 2, dtype=torch.float64, generator=draw), f64([[1.5, 0.4], [0.4, 0.8]]))
    one, two, _ = make_folds(z, y, 2, 3)
    folds = [(statistics_of(*rest, common.means, 2, 1e-4, 1), *held) for rest, held in ((two, one), (one, two))]
    start = shrink(common, 1e-4)
    tries = [Fold.of(start, shrink(local, 1e-4), *held) for local, *held in folds]
    return dict(folds=tries, start=start, prior=label_prior(y, 3, 1e-4)), common, folds, z, y
