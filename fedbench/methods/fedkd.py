"""FedKD: communication-efficient federated learning via knowledge distillation (Wu, Wu, Lyu, Huang, Xie; Nature
Communications 2022).

Private: the mentor, the client's own model of any architecture, and a projection of features. Up and down: updates of
the mentee, the same small model at all clients, each matrix by its largest singular values. Mentor and mentee learn
from the batch, from each other's predictions, and from the distance of their features; the less both have learnt, the
less the last two count: they are divided by the sum of both task losses.

Where we decide:
- This is the method as the paper's figure 5 and public code show it; its equations were not at hand.
- Both step at the same time, with one optimiser. The predictions from which a model learns, and the sum of losses by
  which terms are divided, are constants: no gradient flows into them. Popular code lets it.
- Features are the inputs of the heads. The projection maps the mentee's to the mentor's, so both may have any size; it
  stays at the client. The distance of attention maps, which the paper adds for transformers, is not here.
- The local gradients of the paper are updates, trained minus received parameters, so that local epochs are possible.
  Popular code decomposes the parameters themselves.
- A matrix has a row per output; kernels of convolutions are flattened. Where factors are no shorter, it is sent whole,
  as are biases. The server decomposes the mean update, too, and applies what it sends.
- The threshold of energy rises with the share of rounds that are over. A client that sat out gets all updates that it
  has missed, or the whole mentee where that is shorter; so does one that takes part for the first time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.aggregation.low_rank import low_rank
from fedbench.engine.fit import Loss
from fedbench.engine.losses import calls_of, outputs_of, task_loss_through
from fedbench.methods.base import About, Method, ModelFacts, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.fml import divergence
from fedbench.methods.messages import Encoded, Message, Upload
from fedbench.methods.server import ServerState
from fedbench.module.additions import add_beside, draw_linear
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights
from fedbench.tasks import Task

MENTEE, PROJECTION = "mentee", "projection"
LEAST = 1e-8
"""The smallest sum of losses that is divided by: both may be 0."""


class FedKD(Method["FedKD.Options", PrivateState, "FedKD.Server"]):
    """A private mentor and a shared mentee that teach each other; updates of the mentee are sent in low rank."""

    about = About(
        "a private mentor and a small shared mentee teach each other, updates have low rank",
        "distillation",
        "Wu et al., Nature Communications",
        2022,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {}  # none: each model always learns from the other, and no option ends it
    needs = frozenset({"head", "classes"})
    after_fit = "after_agg"

    class Options(Method.Options):
        energy_start: float = Field(0.95, ge=0, le=1, description="share of energy kept of updates at first, T_start")
        energy_end: float = Field(0.98, ge=0, le=1, description="share of energy kept of updates at last, T_end")
        hidden: bool = Field(True, description="also draw features to each other; false: predictions only")
        shared_model: str | None = Field(
            None, description="the mentee, by name as in model.name; none: the run's first model"
        )

    @dataclass
    class Server(ServerState):
        """sizes: bytes of every update of the mentee so far; holds: how many of them each client has."""

        sizes: list[int] = field(default_factory=list)
        holds: dict[int, int] = field(default_factory=dict)

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        add_beside(module, MENTEE, mentee := facts.another(options.shared_model))
        if options.hidden:
            widths = [of.linear_head()[0].shape[1] for of in (layout, Layout.of(mentee, head_of(mentee, layout)))]
            add_beside(module, PROJECTION, projection := nn.Linear(widths[1], widths[0], bias=False))
            draw_linear(projection, torch.Generator().manual_seed(facts.seed))

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("predictions of another model")
        self.refuse_changed_uploads()
        return ()

    def private(self, layout: Layout) -> Masks:
        return ~layout.under([MENTEE])

    def common_shapes(self) -> list[tuple[int, ...]]:
        return self.shared_shapes()

    def train(self, client: Client, received: Weights) -> Upload:
        layout, options = self.context.layout, self.options
        mentee = head_of(client.learner.module.get_submodule(MENTEE), layout)
        heads = layout.head_name or "", f"{MENTEE}.{mentee}"
        function = partial(distilled_loss, heads=heads, task=client.learner.task, hidden=options.hidden)
        trained = client.fit(received, client.train, loss=Loss(function))
        before, after = self.shared_params.take(received.params), self.shared_params.take(trained.params)
        update, nbytes = self.compress(after - before, client.round)
        upload = self.upload(client, trained)
        upload.add(params=Encoded(before + update, nbytes))
        return upload

    def compress(self, update: Tensor, round: int) -> tuple[Tensor, int]:
        """An update of the mentee `[n]`, its matrices in low rank, and its bytes."""
        options, short, numbers, start = self.options, update.clone(), len(update), 0
        energy = energy_threshold(options.energy_start, options.energy_end, (round - 1) / self.context.rounds)
        for slot in (s for s in self.context.layout.params if self.shared_params.mask[s.start]):
            part = slice(start, start := start + slot.size)
            if len(slot.shape) > 1:
                near, taken = low_rank(update[part].view(slot.shape[0], -1), energy)
                short[part], numbers = near.flatten(), numbers - slot.size + taken
        return short, numbers * update.element_size()

    def send(self, server: Server, client: int) -> Message:
        """The mentee, counted by the updates that the client lacks."""
        message, whole = super().send(server, client), server.params.nbytes
        lacks = sum(server.sizes[server.holds[client] :]) if client in server.holds else whole
        return message.add(params=Encoded(server.params, min(lacks, whole)))

    @uses_aggregator
    @mean_suffices
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        before = server.params
        super().aggregate(server, uploads)
        update, nbytes = self.compress(server.params - before, server.round)
        server.params = before + update
        server.holds.update(dict.fromkeys(server.participants, len(server.sizes)))
        server.sizes.append(nbytes)


def head_of(mentee: nn.Module, layout: Layout) -> str:
    """The dotted name of the mentee's classifier: `head`, or that of the client's model."""
    return "head" if hasattr(mentee, "head") else layout.head_name or ""


def energy_threshold(start: float, end: float, over: float) -> float:
    """The share of energy that updates keep when a share `over` of the rounds is over."""
    return start + (end - start) * over


def distilled_loss(
    net: LightningModule, batch: Any, s: Any, heads: tuple[str, str], task: Task, hidden: bool
) -> Tensor:
    """The sum of both models' losses; the distance of features counts for both, once."""
    loss, features, output = task_loss_through(net, batch, heads[0])
    with calls_of(net.get_submodule(heads[1])) as calls:
        other = outputs_of(net.get_submodule(MENTEE)(batch[0]))
    near = [net.get_submodule(PROJECTION)(calls[0][0].flatten(1)), features.flatten(1)] if hidden else []
    with torch.autocast(loss.device.type, enabled=False):
        mentor, mentee = outputs_of(output).to(loss), other.to(loss)
        common = task.loss(mentee, batch[1])
        apart = divergence(mentee.detach(), mentor) + divergence(mentor.detach(), mentee)
        apart = apart + F.mse_loss(*(part.to(loss) for part in near)) if hidden else apart
        return loss + common + apart / (loss + common).detach().clamp(min=LEAST)
