"""Centred clipping (Karimireddy, He, Jaggi; ICML 2021, Algorithm 2)."""

from collections.abc import Sequence
from math import sqrt

from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.means import dot_products, mean
from fedbench.config import Section
from fedbench.module.weights import Weights


class CentredClipping(Aggregator):
    """The sent model plus the mean of the updates, each shortened to at most a radius; repeated around the result.

    The paper clips worker momenta around the last aggregate; here local models are clipped around the model that the
    clients received. As published, client weights are ignored. Float buffers are averaged.
    """

    class Options(Section):
        radius: float = Field(10.0, gt=0, description="largest length of an update, tau")
        iterations: int = Field(1, ge=1, description="number of steps, L")

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        centre = current.params.double()
        for _ in range(self.options.iterations):
            centre = clipped_mean([m.params for m in models], centre, self.options.radius)
        return combine_by(models, mean, centre.to(current.params))


def clipped_mean(vectors: Sequence[Tensor], centre: Tensor, radius: float) -> Tensor:
    """The centre `[N]` plus the mean of the differences to it, each of at most this length, in float64."""
    total = centre.clone()
    for vector in vectors:
        update = vector.double() - centre
        length = sqrt(float(dot_products([update])))
        total.add_(update, alpha=min(1.0, radius / length if length else 1.0) / len(vectors))
    return total
