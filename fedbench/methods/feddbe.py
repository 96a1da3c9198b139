"""FedDBE: eliminating domain bias in representation space (Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan; NeurIPS 2023).

Private: a vector that is added to the head's input. Up and down: body, head and running statistics, as in FedAvg. Once,
before round 1, every client trains a copy of the start model and reports its mean features, whose mean over all clients
is the target of a regulariser on the batches' mean features.

Where we decide:
- The regulariser is half the mean over the features, which the authors' code tuned kappa = 50 with; the paper writes a
  squared norm.
- The moving mean of features starts at 0 in every fit, without correction, and has a gradient through the newest batch.
- With mu = 1 a client reports the mean features of its last batch, as in the code; `init_mean=full`: of all its images.
- The pass before round 1 takes one epoch, of all clients, and its models are dropped. It costs no round.
- The vector makes plain SGD steps without momentum and decay, as in the code; its rate decays with the others.
- Incomplete batches are kept; the code drops them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.aggregation.means import normalise, weighted_mean
from fedbench.engine.fit import Amount, Loss, Move, Part, Step
from fedbench.engine.losses import task_loss_through
from fedbench.errors import ConfigError
from fedbench.methods.base import About, ExtraPass, Method, ModelFacts
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Encoded, Message, Upload, zero_bytes
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.additions import Addition, add_before_head
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights

MEMORY = "bias_memory"


class FedDBE(ExtraPass["FedDBE.Options", PrivateState, "FedDBE.Server"]):
    """A private vector takes up what is peculiar to a client's features, and the rest is drawn to a common mean."""

    about = About("a private vector, features drawn to a common mean", "domain bias", "Zhang et al., NeurIPS", 2023)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.kappa": 0, "method.bias_lr": 0}}

    class Options(Method.Options):
        kappa: float = Field(50.0, ge=0, description="weight of the regulariser of mean features; 0: none")
        mu: float = Field(1.0, gt=0, le=1, description="share of the newest batch in the moving mean of features")
        init_epochs: int = Field(1, ge=0, description="epochs of the pass before round 1")
        init_mean: Literal["running", "full"] = Field(
            "running", description="what it reports: the moving mean, or that of all samples by the trained model"
        )
        bias_lr: float | None = Field(
            None,
            ge=0,
            description="learning rate of the vector; none: the run's; 0: fixed",
            json_schema_extra={"rate": "own"},
        )

    @dataclass
    class Server(ServerState):
        """mean: of all clients' features `[d]`."""

        mean: Tensor = UNSET

    needs = frozenset({"head"})

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        add_before_head(module, layout, MEMORY, BiasMemory(layout.linear_head()[0].shape[1]))

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("a loss with its memory of features")
        if self.context.train.optimizer not in ("auto", "sgd"):
            raise ConfigError(
                f"train.optimizer = {self.context.train.optimizer}: the private vector makes plain steps beside those "
                "of sgd; choose sgd"
            )
        if not self.options.init_epochs and self.options.init_mean == "running":
            raise ConfigError("method.init_epochs = 0: without an epoch there is no moving mean; set init_mean to full")
        return ()

    def private(self, layout: Layout) -> Masks:
        return layout.under([MEMORY])

    def train(self, client: Client, received: Weights) -> Upload:
        bias_part = Part(self.private_params.mask, lr=self.options.bias_lr, momentum=0.0, weight_decay=0.0)
        loss = None
        if self.options.kappa:
            loss = self.loss(received, kappa=self.options.kappa, target=client.message.mean.to(received.params))
        return self.upload(client, client.fit(received, client.train, loss=loss, step=Step(parts=[bias_part])))

    def loss(self, like: Weights, **needs: Any) -> Loss:
        """A loss that keeps the moving mean of features in its input `mean`."""
        mean = like.params.new_zeros(self.private_params.size)
        return Loss(partial(drawn_loss, mu=self.options.mu), mean=mean, **needs)

    def global_model(self, server: Server, initial: Weights) -> Weights | None:
        """Body and head, without any client's vector."""
        return self.whole_model(server, initial) if self.shared_buffers.all else None

    def question(self, server: Server) -> Message | None:
        """Before round 1: asks all clients to train the start model; the mean of their features comes back once."""
        if server.round:
            return None
        size = server.params.nbytes + self.private_params.size * server.params.element_size()
        return super().send(server, 0).add(params=Encoded(server.params, size))

    def answer(self, client: Client) -> Message:
        options, start = self.options, self.receive(client)
        loss = self.loss(start, kappa=0.0, target=start.params.new_zeros(self.private_params.size))
        move, amount = Move(self.shared_params.mask), Amount(epochs=options.init_epochs)
        trained = client.fit(start, client.train, "init", amount, move, loss)
        if options.init_mean == "running":
            return Message(mean=loss.needs["mean"])
        features = client.learner.features(trained, client.train, MEMORY).flatten(1)
        return Message(mean=features.to(torch.float64).mean(0).to(start.params))

    def conclude(self, server: Server, answers: dict[int, Message]) -> None:
        clients = sorted(answers)
        sizes = [self.context.sizes[i] if self.options.weighting == "samples" else 1 for i in clients]
        server.mean = weighted_mean([answers[i].mean for i in clients], normalise(sizes))

    def send(self, server: Server, client: int) -> Message:
        return super().send(server, client).add(mean=zero_bytes(server.mean))


class BiasMemory(Addition):
    """Adds a vector to the head's input."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(features))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.vector


def drawn_loss(net: LightningModule, batch: Any, s: Any, mu: float) -> Tensor:
    """The client's own loss plus kappa times the regulariser of the moving mean of features, which moves on."""
    loss, features, _ = task_loss_through(net, batch, MEMORY)
    mean = moving_mean(s.mean, features.flatten(1).to(s.mean), mu)
    s.mean.copy_(mean.detach())
    return loss.to(mean) + s.kappa * regulariser(mean, s.target)


def moving_mean(mean: Tensor, features: Tensor, mu: float) -> Tensor:
    """The next moving mean `[d]` of batches of features `[b, d]`, with a gradient through the newest batch."""
    return (1 - mu) * mean.clone() + mu * features.mean(0)


def regulariser(mean: Tensor, target: Tensor) -> Tensor:
    """Half the mean over the features of the squared distance."""
    return (mean - target).square().mean() / 2
