"""The geometric median by smoothed Weiszfeld steps (Pillutla, Kakade, Harchaoui; IEEE TSP 2022, Algorithm 2: RFA)."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.means import weighted_mean
from fedbench.aggregation.rules.krum import squared_distances
from fedbench.config import Section
from fedbench.module.weights import Weights


class GeometricMedian(Aggregator):
    """The point with the least weighted sum of distances to the models' parameters; float buffers get the same weights.

    It withstands clients with less than half of the weight.
    """

    class Options(Section):
        iterations: int = Field(100, ge=1, description="maximum number of steps; the paper takes 3")
        smoothing: float = Field(1e-6, gt=0, description="least distance that divides a weight, nu")

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        squared = squared_distances([m.params for m in models])
        vector = torch.tensor([*weights], dtype=torch.float64)
        shares = weiszfeld(squared, vector, self.options.iterations, self.options.smoothing).tolist()
        return combine_by(models, lambda vectors: weighted_mean(vectors, shares))


def weiszfeld(squared: Tensor, weights: Tensor, iterations: int, smoothing: float) -> Tensor:
    """The weights `[n]`, summing to 1, whose mean of the points is their geometric median.

    squared: squared distances of the points `[n, n]`, which suffice: the squared distance of point j to the mean with
    weights w is (D w)_j - w D w / 2. Stops early once no weight changes by 1e-12.
    """
    current = weights / weights.sum()
    for _ in range(iterations):
        away = (squared @ current - current @ squared @ current / 2).clamp_(min=0).sqrt_()
        new = weights / away.clamp_(min=smoothing)
        new /= new.sum()
        moved = (new - current).abs().max()
        current = new
        if moved < 1e-12:
            break
    return current
