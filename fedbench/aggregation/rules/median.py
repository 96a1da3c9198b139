"""The coordinate-wise median (Yin, Chen, Ramchandran, Bartlett; ICML 2018, definition 1 and Algorithm 1)."""

from collections.abc import Sequence

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.means import trimmed_mean
from fedbench.module.weights import Weights


class Median(Aggregator):
    """The median of every parameter and float buffer; for an even number the mean of the two middle values.

    As published, client weights are ignored. For one or two participants it is their plain mean.
    """

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        return combine_by(models, lambda vectors: trimmed_mean(vectors, (len(vectors) - 1) // 2))
