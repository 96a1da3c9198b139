"""Ditto (Li, Hu, Beirami, Smith; ICML 2021): a personal model beside FedAvg's, pulled to the global one.

Private: the personal model with its running statistics. Up and down: the global model, trained as in FedAvg whatever
the options of the personal one are.

Where we decide:
- The pull goes to the received model. Popular code that trains the global model first, in the same tensors, pulls to
  that one; with one optimiser for both models, momentum of each phase moves the other model too.
- Both phases start from the stream `fit`, so that both see the batches and dropout masks of fedavg and local.
- Clients are weighted by images, so that the global model is FedAvg's; Algorithm 1 averages uniformly.
- The personal model starts from the run's start model, which the paper leaves to the user. Choosing `lam` at every
  client and the robust aggregators of the paper are not here.
"""

from copy import copy
from typing import Any, Literal

import torch
from pydantic import Field

from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Upload
from fedbench.methods.fedprox import proximal_pull


class Ditto(Method):
    """The personal model minimises the client's loss plus (lam / 2) ||v - received||^2 (eq. 1)."""

    class Options(Method.Options):
        lam: float = Field(1.0, ge=0, description="weight of the pull to the global model, eq. 1")
        personal_epochs: int | None = Field(
            None, ge=1, description="epochs of the personal model; none: as many as the global one gets, Algorithm 1"
        )
        personal_lr: float | None = Field(
            None, gt=0, description="learning rate of the personal model; none: the run's"
        )
        mode: Literal["joint", "finetune"] = Field(
            "joint", description="personal models every round, or once from the last global model"
        )

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        upload = super().fit(client, received, download)
        if self.options.mode == "joint":
            own = self._pulled(client, self._own(client), received, client.train, client.memory("personal"))
            client.fitted, client.state["personal"] = own, vars(own)
            upload.traces["distance"] = float(torch.linalg.vector_norm(own.params - received.params))
        return upload

    def personal(self, client: Client, download: Message) -> Predictor:
        if self.options.mode == "joint":
            return self._own(client)
        last = self.receive(client, download)
        return last if client.round < self.context.rounds else self._pulled(client, last, last, ahead(client))

    def _own(self, client: Client) -> Weights:
        """The personal model as its last training left it."""
        return Weights(**client.state["personal"]) if "personal" in client.state else client.initial

    def _pulled(
        self, client: Client, start: Weights, anchor: Weights, data: Any, memory: dict[str, Any] | None = None
    ) -> Weights:
        """Local training from `start` under the pull to `anchor` (Algorithm 1)."""
        pull: dict[str, Any] = {}
        if self.options.lam:
            state = {"anchor": anchor.params, "mu": anchor.params.new_tensor(self.options.lam)}
            pull = {"gradient": proximal_pull, "state": state}
        epochs, lr = self.options.personal_epochs, self.options.personal_lr
        return client.learner.fit(start, data, epochs=epochs, lr=lr, memory=memory, **pull)


def ahead(client: Client) -> Any:
    """The client's training images with the batches of the next round."""
    data = copy(client.train)
    data.key = (client.seed, client.id, client.round + 1)
    return data
