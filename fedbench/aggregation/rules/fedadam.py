"""FedAdam (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan; ICLR 2021, Algorithm 2)."""

from collections.abc import Sequence

import torch
from pydantic import Field

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by, mean_suffices
from fedbench.aggregation.means import weighted_mean
from fedbench.config import Section
from fedbench.module.weights import Weights


class FedAdam(Aggregator):
    """One step of Adam along the mean update of the parameters; float buffers are averaged.

    The update is the weighted mean of the clients' changes. m starts at 0 and v at tau^2; as in Algorithm 2, there is
    no bias correction.
    """

    class Options(Section):
        lr: float = Field(0.1, gt=0, description="server learning rate, eta")
        beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of updates, m")
        beta2: float = Field(0.99, ge=0, lt=1, description="decay of the mean of squared updates, v")
        tau: float = Field(
            1e-3, gt=0, description="added to the root of v; smaller values make the steps of entries more equal"
        )

    @mean_suffices
    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        options, before = self.options, current.params
        update = weighted_mean([before, *(m.params for m in models)], [-1.0, *weights])
        if not memory:
            memory |= {"m": torch.zeros_like(before), "v": torch.full_like(before, options.tau**2)}
        memory["m"] = options.beta1 * memory["m"] + (1 - options.beta1) * update
        memory["v"] = options.beta2 * memory["v"] + (1 - options.beta2) * update.square()
        params = before + options.lr * memory["m"] / (memory["v"].sqrt() + options.tau)
        return combine_by(models, lambda buffers: weighted_mean(buffers, weights), params)
