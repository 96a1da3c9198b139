"""FedPer: federated learning with personalization layers (Arivazhagan, Aggarwal, Singh, Choudhary; preprint 2019).

Private: the declared head, and the layers of `extra_private` with their running statistics. Up and down: the rest.
Body and head are trained together in every step; training them one after the other is FedRep.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.learner import seeds
from fedbench.learner.layout import Layout
from fedbench.methods.base import Client, Method, Predictor


class FedPer(Method):
    """Every client keeps its own head."""

    class Options(Method.Options):
        extra_private: tuple[str, ...] = Field(
            (), description="dotted names of further private layers (the paper's K_P > 1)"
        )
        head_init: Literal["common", "own"] = Field(
            "common", description="first head: the run's, or drawn anew at every client"
        )

    needs_head = True

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = layout.mask_of(self.options.extra_private)
        return params | layout.mask("head"), buffers | layout.buffer_mask("head")

    def start(self, client: Client) -> None:
        if self.options.head_init == "own":
            client.state["params"] = self.own.take(redrawn_head(client))

    def untrained(self, client: Client) -> Predictor:
        """The start model, under the client's own head where there is one."""
        head = client.state.get("params", self.own.take(client.initial.params))
        return client.initial.replace(params=self.own.put(client.initial.params, head))


def redrawn_head(client: Client) -> Tensor:
    """The initial parameters `[N]` with the head drawn by its module's own initialisation, a stream per client."""
    learner = client.learner
    learner.load(client.initial)
    with seeds.preserved_streams(), torch.no_grad():
        seeds.seed_everything(client.seed, client.id, "head")
        for module in learner.module.get_submodule(learner.layout.head_name or "").modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return learner.weights().params
