"""FedALA: adaptive local aggregation (Zhang, Hua, Wang, Song, Xue, Ma, Guan; AAAI 2023).

Private: the last model that the client trained and, for every parameter of the top layers, a weight in [0, 1] that says
how far towards the received model the client starts. Up and down: the whole model, as in FedAvg.

Where we decide:
- The paper learns the weights until they settle in round 2 and with one pass later; with partial participation that is
  a client's second participation. A client that never trained starts from the received model; the authors' code tests
  that by a sum of differences, which can cancel.
- `num_layers` counts layers (modules that own parameters), as the paper does; the authors' code counts tensors.
- The images that weights are learned on are drawn anew in every participation; the authors' code takes a contiguous
  block. They are learned in evaluation mode with the received statistics, on which paper and code are silent.
- Only participants aggregate, as in the paper; the authors' server does it for all clients in every round.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import floor

import torch
from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout, Slot
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Part, Received, Upload


class FedALA(Method):
    """Every client learns how much of the received model it wants, parameter by parameter."""

    class Options(Method.Options):
        num_layers: int = Field(1, ge=1, description="top layers whose parameters are weighted, p in sec. 4")
        eta: float = Field(1.0, ge=0, description="learning rate of the weights; train.lr_decay leaves it alone")
        sample_ratio: float = Field(0.8, gt=0, le=1, description="share of training images to learn on, s")
        threshold: float = Field(0.1, gt=0, description="first learning ends when the loss varies less than this")
        num_pre_loss: int = Field(10, ge=2, description="losses whose standard deviation that is")
        start_max_epochs: int = Field(100, ge=1, description="most passes of the first learning")

    _top: Part | None = None

    def check(self) -> None:
        known = len({owner(slot) for slot in self.context.layout.params})
        if self.options.num_layers > known:
            raise ConfigError(
                f"method.num_layers = {self.options.num_layers}: the model has {known} layers with parameters; "
                f"take 1 to {known}"
            )

    def top(self, client: Client) -> Part:
        """P, the parameters of the top layers."""
        if self._top is None:
            layout = self.context.layout
            chosen = layer_names(layout, client.learner.forward_order(client.train))[-self.options.num_layers :]
            mask = torch.zeros(layout.size, dtype=torch.bool)
            for slot in layout.params:
                mask[slot.start : slot.stop] = owner(slot) in chosen
            self._top = Part(mask)
        return self._top

    def receive(self, client: Client, download: Message) -> Weights:
        """The received model, in the top layers moved back towards the client's own (Algorithm 1)."""
        shared = super().receive(client, download)
        if "local" not in client.state:
            return shared
        top = self.top(client)
        own, ratios = top.take(client.state["local"]), client.state.get("ratios")
        start = torch.ones_like(own) if ratios is None else ratios
        params, ratios, passes = self._learn(client, shared, top, own, start, once=ratios is not None)
        extra = {"ratios": ratios, "passes": torch.tensor(passes)}
        return Received(params, shared.buffers, shared.counters, extra)

    def _learn(
        self, client: Client, shared: Weights, top: Part, own: Tensor, ratios: Tensor, once: bool
    ) -> tuple[Tensor, Tensor, int]:
        """The aggregated parameters `[N]`, the weights `[N_p]` that made them, and the passes over the images."""
        difference = top.take(shared.params) - own
        mixed = top.put(shared.params, own + difference * ratios)
        batches, losses = self._batches(client), []
        while True:
            loss = torch.zeros(())
            for index in batches:
                loss, slope = client.learner.loss_and_gradient(
                    shared.replace(params=mixed), client.train.batch(index), train_only=top.mask
                )
                ratios = (ratios - self.options.eta * top.take(slope) * difference).clamp_(0, 1)
                mixed = top.put(shared.params, own + difference * ratios)
            losses.append(float(loss))
            if once or self._settled(losses) or len(losses) == self.options.start_max_epochs:
                return mixed, ratios, len(losses)

    def _batches(self, client: Client) -> Sequence[Tensor]:
        """Index tensors over a random part of the training images."""
        count, size = len(client.train), self.context.train.batch_size
        drawn = torch.randperm(count, generator=client.generator("weights"))
        drawn = drawn[: max(1, floor(Fraction(str(self.options.sample_ratio)) * count))]
        return drawn.to(client.learner.device).split(count if size == "full" else size)

    def _settled(self, losses: Sequence[float]) -> bool:
        """Whether the losses of the last passes hardly vary."""
        last = self.options.num_pre_loss
        spread = torch.tensor(losses[-last:], dtype=torch.float64).std(correction=0)
        return len(losses) > last and float(spread) < self.options.threshold

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        traces = {}
        if isinstance(received, Received):
            ratios = client.state["ratios"] = received.extra["ratios"]
            traces = {"aggregation_weight": float(ratios.mean()), "passes": float(received.extra["passes"])}
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"))
        client.state["local"] = trained.params
        return self.upload(client, trained, traces=traces)


def layer_names(layout: Layout, order: Sequence[str]) -> list[str]:
    """The modules that own parameters, as a forward pass enters them; those of the declared classifier last."""
    heads = {owner(slot): slot.head for slot in layout.params}
    return sorted((name for name in order if name in heads), key=heads.__getitem__)


def owner(slot: Slot) -> str:
    """Dotted name of the module that a parameter belongs to."""
    return slot.name.rpartition(".")[0]
