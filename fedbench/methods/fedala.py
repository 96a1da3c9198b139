"""FedALA: adaptive local aggregation (Zhang, Hua, Wang, Song, Xue, Ma, Guan; AAAI 2023).

Private: the client's last trained model and, for every parameter of the top layers, a weight in [0, 1]: how far towards
the received model the client starts. Up and down: the whole model, as in FedAvg.

Where we decide:
- The paper learns the weights until they settle in round 2 and with one pass later; with partial participation that is
  a client's second participation. A client that never trained starts from the received model; the authors' code tests
  that by a sum of differences, which can cancel.
- `num_layers` counts layers (modules that own parameters), as the paper does; the authors' code counts tensors.
- The images for learning weights are drawn again in every participation; the authors' code takes a contiguous block.
  Weights are learned in evaluation mode with the received statistics; paper and code do not specify this.
- Only participants aggregate, as in the paper; the authors' server does it for all clients in every round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.ranks import floored_share
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Upload
from fedbench.module.layout import Layout, Slot
from fedbench.module.masks import Entries
from fedbench.module.weights import Weights


@dataclass(eq=False)
class AlaStart(Weights):
    """A client's start, its learned weights `[N_p]`, and the passes over its images."""

    ratios: Tensor
    passes: int


class FedALA(Method["FedALA.Options", "FedALA.State"]):
    """Every client learns how much of the received model to use, per parameter."""

    about = About(
        "clients learn how much of the global model to take, parameter by parameter",
        "personalised aggregation",
        "Zhang et al., AAAI",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"partition.clients": 1}}

    class Options(Method.Options):
        num_layers: int = Field(1, ge=1, description="top layers whose parameters are weighted, p in sec. 4")
        eta: float = Field(
            1.0,
            ge=0,
            description="learning rate of the weights; train.lr_decay leaves it alone",
            json_schema_extra={"rate": "own"},
        )
        sample_ratio: float = Field(0.8, gt=0, le=1, description="share of training samples to learn on, s")
        threshold: float = Field(0.1, gt=0, description="first learning ends when the loss varies less than this")
        num_pre_loss: int = Field(10, ge=2, description="losses whose standard deviation that is")
        start_max_epochs: int = Field(100, ge=1, description="most passes of the first learning")

    @dataclass
    class State(PrivateState):
        """local: parameters `[N]` of the last trained model; ratios: `[N_p]`, None before they are learned."""

        local: Tensor | None = None
        ratios: Tensor | None = None

    def check(self) -> tuple[str, ...]:
        self.refuse_private_steps("gradients of the weights by which a client mixes models")
        known = len({owner(slot) for slot in self.context.layout.params})
        if self.options.num_layers > known:
            raise ConfigError(
                f"method.num_layers = {self.options.num_layers}: the model has {known} layers with parameters; "
                f"take 1 to {known}"
            )
        return ()

    def receive(self, client: Client[State]) -> Weights:
        """The received model, its top layers moved towards the client's own (Algorithm 1)."""
        shared, local = super().receive(client), client.state.local
        return shared if local is None else self._learn_mixture(client, shared, local)

    def top(self, client: Client[State]) -> Entries:
        """P, the parameters of the top layers."""
        layout = self.context.layout
        chosen = layer_names(layout, client.learner.forward_order(client.train))[-self.options.num_layers :]
        return Entries(torch.cat([torch.full((slot.size,), owner(slot) in chosen) for slot in layout.params]))

    def _learn_mixture(self, client: Client[State], shared: Weights, local: Tensor) -> AlaStart:
        """The first learning runs until the loss settles; later ones run one pass per participation."""
        options, before, top = self.options, client.state.ratios, self.top(client)
        own, received = top.take(local), top.take(shared.params)

        def look(mixture: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
            model = shared.replace(params=top.put(shared.params, mixture))
            loss, gradient = client.learner.gradient(model, client.train.batch(index), mask=top.mask)
            return loss, top.take(gradient)

        ratios, passes = learn_ratios(
            look,
            self._batches(client),
            own,
            received,
            torch.ones_like(own) if before is None else before,
            eta=options.eta,
            most=options.start_max_epochs if before is None else 1,
            window=options.num_pre_loss,
            threshold=options.threshold,
        )
        params = top.put(shared.params, mix(own, received, ratios))
        return AlaStart(params, shared.buffers, shared.counters, ratios, passes)

    def _batches(self, client: Client[State]) -> Sequence[Tensor]:
        """Places of a random part of the training images, batch by batch."""
        count, size = len(client.train), self.context.train.batch_size
        drawn = torch.randperm(count, generator=client.generator("weights"))
        drawn = drawn[: max(1, floored_share(self.options.sample_ratio, count))]
        return drawn.to(client.learner.device).split(count if size == "full" else size)

    def train(self, client: Client[State], received: Weights) -> Upload:
        trained, traces = client.fit(received, client.train), {}
        if isinstance(received, AlaStart):
            client.state.ratios = received.ratios
            traces = {"aggregation_weight": float(received.ratios.mean()), "passes": float(received.passes)}
        client.state.local = trained.params
        return self.upload(client, trained, traces=traces)


def mix(own: Tensor, received: Tensor, ratios: Tensor) -> Tensor:
    """Moves `own` towards `received` `[n]` by weights `[n]` in [0, 1]."""
    return own + (received - own) * ratios


def learn_ratios(
    look: Callable[[Tensor, Any], tuple[Tensor, Tensor]],
    batches: Sequence[Any],
    own: Tensor,
    received: Tensor,
    ratios: Tensor,
    *,
    eta: float,
    most: int,
    window: int,
    threshold: float,
) -> tuple[Tensor, int]:
    """The weights `[n]` learned on the batches, and the passes over them, at most `most` (Algorithm 1).

    look: the loss `[]` of a batch at a mixture `[n]`, and its gradient `[n]`; own, received, ratios: see `mix`; eta:
    learning rate; window, threshold: see `has_settled`, of the loss of each pass's last batch.
    """
    losses: list[float] = []
    while len(losses) < most and not has_settled(losses, window, threshold):
        loss = torch.zeros(())
        for batch in batches:
            loss, gradient = look(mix(own, received, ratios), batch)
            ratios = (ratios - eta * gradient * (received - own)).clamp_(0, 1)
        losses.append(float(loss))
    return ratios, len(losses)


def has_settled(losses: Sequence[float], window: int, threshold: float) -> bool:
    """Whether there are more losses than the window has, and the last ones, in the window, hardly vary."""
    if len(losses) <= window:
        return False
    return float(torch.tensor(losses[-window:], dtype=torch.float64).std(correction=0)) < threshold


def layer_names(layout: Layout, order: Sequence[str]) -> list[str]:
    """The modules that own parameters in the order of a forward pass, those of the classifier last."""
    heads = {owner(slot): slot.head for slot in layout.params}
    return sorted((name for name in order if name in heads), key=heads.__getitem__)


def owner(slot: Slot) -> str:
    """Dotted name of the module that a parameter belongs to."""
    return slot.name.rpartition(".")[0]
