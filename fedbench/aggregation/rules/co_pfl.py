"""The contribution weights of CO-PFL (Xing, Dong, Fan, Zeng, Leung, Deen, Hu; 2025, eq. 8 and 10)."""

from collections.abc import Sequence

import torch

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.leave_one_out import contribution_weights, deviations
from fedbench.aggregation.means import weighted_mean
from fedbench.module.weights import Weights


class CoPFLMean(Aggregator):
    """The mean of parameters and float buffers, weighted by how far a client's update deviates from the others'.

    A client's score is 1 minus the cosine of its update and the mean update of the others in the same round, the
    reading `loo_update=same_round` of the method. The method's second score, a loss on the client's data (eq. 9), is
    not known at the server. As published, the clients' own weights are ignored.
    """

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        sent = [model.params for model in models]
        whole = torch.ones(1, dtype=torch.bool, device=current.params.device).expand(len(current.params))
        scores = deviations(current.params, sent, [whole] * len(sent))
        return combine_by(models, lambda vectors: weighted_mean(vectors, contribution_weights(scores)))
