"""pFedMe (T Dinh, Tran, Nguyen; NeurIPS 2020): personal models by Moreau envelopes.

Private: the personal model theta_i, an output that the next round does not need, with its running statistics. Up and
down: the client's copy w_i of the global model, moved towards theta_i, and the running statistics, which follow
theta_i's passes. What is evaluated is theta_i, which aggregation does not change.

Where we decide:
- The mean is uniform, as Algorithm 1 says; the authors' code weights by images. beta moves parameters only: beyond 1 it
  could make variances negative.
- theta starts at the received model once a round and continues between local rounds (`inner_start=warm`), as in the
  authors' code; the paper requires an approximate minimiser only. Their code also decays theta by 1e-3; ours does not.
- personal_lr is 0.01, not the 0.09 of the authors' code, which diverges on a convolution net.
- The authors' code, and popular code after it, keeps theta as the optimiser's own list of parameters and overwrites it
  with w_i at the end of the round: its personal model is w_i.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from fedbench.aggregation.aggregator import MEAN
from fedbench.aggregation.means import weighted_mean
from fedbench.config import TrainConfig
from fedbench.engine.fit import Step
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights


class PFedMe(Method["PFedMe.Options", "PFedMe.State"]):
    """A personal model near the global one, which is pulled to the personal models."""

    about = About(
        "personal models by Moreau envelopes: near the global one, and it near them",
        "regularisation",
        "T Dinh et al., NeurIPS",
        2020,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "local": {
            "rounds": 1,
            "method.lam": 0,
            "method.inner_steps": 1,
            "method.personal_lr": 0.005,
            "train.optimizer": "sgd",
        }
    }

    class Options(Method.UniformOptions):
        lam: float = Field(15.0, ge=0, description="weight of the distance between theta and w, eq. 2")
        inner_steps: int = Field(5, ge=1, description="steps K of theta on each batch")
        personal_lr: float = Field(0.01, gt=0, description="learning rate of theta", json_schema_extra={"rate": "own"})
        beta: float = Field(1.0, gt=0, description="how far the server goes towards the mean, Algorithm 1")
        inner_start: Literal["warm", "centre"] = Field(
            "warm", description="where theta starts in a local round: where it was, or at w_i"
        )
        inner_weight_decay: float = Field(0.0, ge=0, description="decay of theta; 1e-3 in the authors' code")
        update_all: bool = Field(
            False, description="everybody trains in every round and only the participants upload, Algorithm 1"
        )

    @dataclass
    class State(PrivateState):
        theta: Weights | None = None

    train_defaults: ClassVar[dict[str, Any]] = {"lr": 0.005, "momentum": 0.0, "weight_decay": 0.0}
    after_fit = "after_agg"
    optimizer = "plain"

    @classmethod
    def trainers(cls, options: Options) -> Literal["drawn", "all"]:
        return "all" if options.update_all else "drawn"

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return True

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return super().steps(options, train, samples, public) * options.inner_steps

    def check(self) -> Iterator[str]:
        lam, rate, lr = self.options.lam, self.options.personal_lr, self.context.train.lr
        if rate * lam >= 2:
            yield f"pfedme: personal_lr x lam = {rate * lam:g} is at least 2, theta diverges: lower one of them"
        if self.options.beta != 1 and self.context.aggregator.name != MEAN:
            raise ConfigError(
                f"method.beta = {self.options.beta:g}: the server goes that far towards the mean; for aggregator "
                f"{self.context.aggregator.name} set it to 1"
            )
        if lr * lam > 1:
            yield f"pfedme: lr x lam = {lr * lam:g} is above 1, w overshoots theta: lower one of them"

    def train(self, client: Client[State], received: Weights) -> Upload:
        options, rate = self.options, client.rate(self.options.personal_lr)
        centre, lam = received.params.clone(), options.lam  # w_i
        with client.training(received, client.train, step=Step(rule=torch.optim.SGD)) as training:
            theta = training.w
            for batch in training:
                if options.inner_start == "centre":
                    theta.copy_(centre)
                for _ in range(options.inner_steps):
                    g = training.gradient(batch).add_(theta - centre, alpha=lam)
                    theta.sub_(g.add_(theta, alpha=options.inner_weight_decay), alpha=rate)
                centre.sub_(centre - theta, alpha=client.rate() * lam)
        client.state.theta = training.weights
        upload = self.upload(client, training.weights.replace(params=centre))
        if client.message.drawn:
            return upload
        return Upload(client.id, client.samples, upload.trained)

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights:
        return client.state.theta or client.initial

    def join(self, client: Client[State], received: Weights) -> Weights:
        """theta starts at w."""
        client.state.theta = received
        if client.epochs:
            self.train(client, received)
        return client.state.theta

    def send(self, server: ServerState, client: int) -> Message:
        return super().send(server, client).add(drawn=zero_bytes(torch.tensor(client in server.participants)))

    @uses_aggregator
    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        uploads = [u for u in uploads if "params" in u]
        if not uploads:
            return
        before, beta = server.params, self.options.beta
        super().aggregate(server, uploads)
        if beta != 1:
            rows, weights = [before, *(u.params for u in uploads)], self.weights(uploads)
            server.params = weighted_mean(rows, [1 - beta, *(beta * x for x in weights)])
