"""FedEM: federated learning under a mixture of distributions (Marfoq, Neglia, Bellet, Kameni, Vidal; NeurIPS 2021).

Private: the client's mixture weights. Up and down: all component models. A round weighs every image by how likely each
component explains it (E-step), takes the mean of these weights as mixture weights, and trains each component on the
weighted loss. Predictions mix the components' class probabilities.

Where we decide:
- Mixture weights come first, from the received models, and are not computed again after training (paper and code).
- Means are those of the participants; in the authors' code clients that sit out enter with old copies.
- All components see the same batches, so that one component is FedAvg; the code shuffles for each anew.
- A client that never trained gets mixture weights by one pass, as the paper does for clients not seen in training.
- Momentum and decay act on each component in full, however small its weights are.
- Running statistics of a component are averaged like its parameters. The decentralised version is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.config import TrainConfig
from fedbench.engine.fit import Batches, Loss, Step
from fedbench.engine.losses import outputs_of
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Message, Upload, number_models, weights_of
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights
from fedbench.results.trace import MIXTURE


@dataclass(eq=False)
class Components(Weights):
    """The first component, and the others."""

    others: list[Weights]

    @classmethod
    def of(cls, models: Sequence[Weights]) -> "Components":
        return cls(**vars(models[0]), others=[*models[1:]])

    @property
    def all(self) -> list[Weights]:
        return [Weights(self.params, self.buffers, self.counters), *self.others]


class FedEM(Method["FedEM.Options", "FedEM.State", "FedEM.Server"]):
    """Every client has its own mixture of several shared models."""

    about = About("own mixtures of several shared models", "clustering", "Marfoq et al., NeurIPS", 2021)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.components": 1}}
    traces = (MIXTURE,)

    class Options(Method.Options):
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: each component has its own, averaged
        components: int = Field(3, ge=1, description="component models, M")
        init: Literal["random", "jitter"] = Field(
            "random", description="first components: each drawn anew, or the run's model with noise"
        )
        init_scale: float = Field(0.1, ge=0, description="standard deviation of that noise")
        refresh: int = Field(0, ge=0, description="passes that renew the mixture weights for evaluation")

    @dataclass
    class State(PrivateState):
        """mixture: pi `[M]`, float64."""

        mixture: Tensor | None = None

    @dataclass
    class Server(ServerState):
        """others: all components but the first."""

        others: list[Weights] = field(default_factory=list)

    needs = frozenset({"classes"})
    also_sends = "the other models of their mixture"

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return options.components * super().steps(options, train, samples, public)

    def start_models(self, initial: Weights) -> list[Weights]:
        jitter = self.options.init_scale if self.options.init == "jitter" else None
        return self.context.start_models(initial, self.options.components, jitter)

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.others = self.start_models(initial)[1:]
        return server

    def send(self, server: Server, client: int) -> Message:
        return super().send(server, client).add(**number_models("other", server.others))

    def receive(self, client: Client[State]) -> Components:
        return Components.of([super().receive(client), *client.message.models("other")])

    def idle_model(self, client: Client[State]) -> Components:
        return Components.of(self.start_models(client.initial))

    def train(self, client: Client[State], received: Weights) -> Upload:
        assert isinstance(received, Components)
        shares = responsibilities(self.mixture(client), losses_of(client, received.all))
        client.state.mixture = shares.mean(0)
        trained = [
            client.fit(
                model,
                client.train,
                loss=Loss(weighted_loss, weights=weights.to(model.params)),
                step=Step(memory=f"component {number}"),
            )
            for number, (model, weights) in enumerate(zip(received.all, shares.T, strict=True))
        ]
        traces = {f"mixture/{number}": value for number, value in enumerate(client.state.mixture.tolist(), 1)}
        upload = self.upload(client, trained[0], traces=traces, **number_models("other", trained[1:]))
        upload.trained = Components.of(trained)
        return upload

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights | Predictor:
        """The mixture of the components' probabilities; its weights are renewed for new models only."""
        assert isinstance(model, Components)
        if not model.others:
            return model
        mixture, passes = self.mixture(client), self.options.refresh
        if client.state.mixture is None:
            passes = max(passes, 1)
        if point == "after_agg" and passes:
            losses = losses_of(client, model.all)
            for _ in range(passes):
                mixture = responsibilities(mixture, losses).mean(0)
        return Predictor(partial(mixed_scores, client, model.all, mixture))

    def join(self, client: Client[State], received: Weights) -> Weights | Predictor:
        """The received components under mixture weights of as many passes as epochs; none is trained."""
        assert isinstance(received, Components)
        if not received.others:
            return received
        mixture, losses = self.mixture(client), losses_of(client, received.all)
        for _ in range(client.epochs or 0):
            mixture = responsibilities(mixture, losses).mean(0)
        return Predictor(partial(mixed_scores, client, received.all, mixture))

    def mixture(self, client: Client[State]) -> Tensor:
        kept, count = client.state.mixture, self.options.components
        even = torch.full((count,), 1 / count, dtype=torch.float64)
        return (even if kept is None else kept).to(client.initial.params.device)

    @mean_suffices
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        each = zip(*([weights_of(u), *u.models("other")] for u in uploads), strict=True)
        first, *server.others = (self.mean_model(uploads, models) for models in each)
        server.set_model(first)

    def global_model(self, server: Server, initial: Weights) -> Weights | None:
        """The only component, if there is one."""
        return super().global_model(server, initial) if self.options.components == 1 else None


def losses_of(client: Client, models: Sequence[Weights]) -> Tensor:
    """Cross-entropy `[n, M]` of every model on every training image, in evaluation mode, float64."""
    labels = client.train.labels
    scores = [client.learner.logits(model, client.train).to(torch.float64) for model in models]
    return torch.stack([F.cross_entropy(logits, labels.to(logits.device), reduction="none") for logits in scores], 1)


def responsibilities(mixture: Tensor, losses: Tensor) -> Tensor:
    """q `[n, M]`: the components' shares of each image, from mixture weights `[M]` and losses `[n, M]` (E-step)."""
    return (mixture.log() - losses).softmax(1)


def weighted_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """Mean over the batch of the cross-entropy times the component's share of each image."""
    x, y = batch
    losses = F.cross_entropy(outputs_of(net(x)), y, reduction="none")
    return (s.weights.index_select(0, s.index) * losses).mean()


def mixed_scores(client: Client, models: Sequence[Weights], mixture: Tensor, data: Batches) -> Tensor:
    """Logarithm of the mixture of the models' class probabilities `[n, C]`."""
    logs = torch.stack([client.learner.logits(model, data).to(torch.float64).log_softmax(1) for model in models])
    return (mixture.log()[:, None, None] + logs).logsumexp(0)
