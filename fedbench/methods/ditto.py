"""Ditto (Li, Hu, Beirami, Smith; ICML 2021): a personal model beside FedAvg's, pulled to the global one.

Private: the personal model with its running statistics. Up and down: the global model, trained as in FedAvg regardless
of the options of the personal one.

Where we decide:
- The pull goes to the received model. Popular code that trains the global model first, in the same tensors, pulls to
  the trained one; with one optimiser for both, momentum of each phase moves the other model too.
- Both phases start from the stream `fit`, so both see the batches and dropout masks of fedavg and local.
- Clients are weighted by images, so that the global model is FedAvg's; Algorithm 1 averages uniformly.
- The personal model starts from the run's start model, which the paper leaves to the user. Choosing `lam` at every
  client and the robust aggregators of the paper are not here.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Step
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.fedprox import proximal_pull
from fedbench.methods.messages import Upload
from fedbench.module.weights import Weights


class Ditto(Method["Ditto.Options", "Ditto.State"]):
    """The personal model minimises the client's loss plus (lam / 2) ||v - received||^2 (eq. 1)."""

    about = About(
        "a personal model beside fedavg's, pulled to the global one", "regularisation", "Li et al., ICML", 2021
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"method.lam": 0}}

    class Options(Method.Options):
        lam: float = Field(1.0, ge=0, description="weight of the pull to the global model, eq. 1")
        personal_epochs: int | None = Field(
            None, ge=1, description="epochs of the personal model; none: as many as the global one gets, Algorithm 1"
        )
        personal_lr: float | None = Field(
            None,
            gt=0,
            description="learning rate of the personal model; none: the run's",
            json_schema_extra={"rate": "run"},
        )
        mode: Literal["joint", "finetune"] = Field(
            "joint", description="personal models every round, or once from the last global model"
        )

    @dataclass
    class State(PrivateState):
        personal: Weights | None = None

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        extra = Amount(epochs=options.personal_epochs).steps_on(samples, train) if options.mode == "joint" else 0
        return super().steps(options, train, samples, public) + extra

    def train(self, client: Client[State], received: Weights) -> Upload:
        upload = super().train(client, received)
        if self.options.mode == "joint":
            personal = self._fit_pulled(client, client.state.personal or client.initial, received, client.train)
            client.state.personal = personal
            upload.traces["distance"] = float(torch.linalg.vector_norm(personal.params - received.params))
        return upload

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights:
        if self.options.mode == "joint":
            return client.state.personal or client.initial
        last = point == "after_agg" and self.context.is_last(client.round)
        return self._fit_pulled(client, model, model, next_round_data(client)) if last else model

    def join(self, client: Client[State], received: Weights) -> Weights:
        """The personal model starts at the global one, as with `mode=finetune`."""
        return self._fit_pulled(client, received, received, client.train)

    def _fit_pulled(self, client: Client[State], start: Weights, anchor: Weights, data: Any) -> Weights:
        """Local training from `start` under the pull to `anchor` (Algorithm 1)."""
        options = self.options
        pull: dict[str, Any] = (
            {"edit": proximal_pull, "anchor": anchor.params, "mu": options.lam} if options.lam else {}
        )
        step = Step(lr=options.personal_lr, memory="personal", **pull)
        epochs = options.personal_epochs if client.epochs is None else client.epochs
        return client.fit(start, data, amount=Amount(epochs=epochs), step=step)


def next_round_data(client: Client) -> Any:
    """The client's training images, with the next round's batches."""
    data = copy(client.train)
    data.key = (client.seed, client.id, client.round + 1)
    return data
