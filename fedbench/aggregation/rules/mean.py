"""The weighted mean (McMahan, Moore, Ramage, Hampson, Aguera y Arcas; AISTATS 2017, Algorithm 1)."""

from collections.abc import Sequence

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by, mean_suffices
from fedbench.aggregation.means import weighted_mean
from fedbench.module.weights import Weights


class Mean(Aggregator):
    """Parameters and float buffers, averaged with the clients' weights."""

    @mean_suffices
    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        return combine_by(models, lambda vectors: weighted_mean(vectors, weights))
