"""FedSelect, customised selection of parameters for fine-tuning (Tamirisa, Xie, Bao, Zhou, Arel, Shamsian; CVPR 2024).

Private: a growing mask of personal parameters, their values, the float buffers. Up: the other parameters and the mask;
down: the server's vector. In each local epoch the personal parameters are trained first, then the others.

Where we decide:
- Mostly with the authors' code.
- Selection per parameter tensor, of weights only, a share of the entries that are still free (`scope`, `mask_biases`).
  The code takes all entries above a quantile and looks at its bound afterwards, so that ties and the last step
  overshoot; here the number is exact, ties go to the lower index.
- A mask grows every round from that round's change, as in the paper; the code does it every third round from the change
  since the last time (`mask_interval`, `delta_reference`), and clips gradients (`clip_norm`).
- Averages and downloads use the mask that the round was trained with: newly selected entries start from the mean
  (`newly_selected`). Every entry is averaged over the clients that share it, with equal weights.
- A pass over an empty part is not run; the code runs it, which changes running statistics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import masked_mean
from fedbench.aggregation.packed import bits_to_mask, mask_counts, mask_to_bits
from fedbench.aggregation.ranks import floored_share, largest
from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Step
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, sparse
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout, shares_by_tensor
from fedbench.module.masks import choose, holds_one, without
from fedbench.module.weights import Weights
from fedbench.results.trace import mask_trace


class FedSelect(Method["FedSelect.Options", "FedSelect.State"]):
    """Parameters that change most become personal; they and the shared ones are trained in turn."""

    about = About(
        "parameters that change most turn private and are trained in turns with the shared ones",
        "parameter decoupling",
        "Tamirisa et al., CVPR",
        2024,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg:weighting=uniform": [
            {
                "method.personalization_rate": 0,
                "method.buffers": "average",
                "model": "mlp",
                "train.batch_size": "full",
                "train.shuffle": False,
            },
            {
                "method.personalization_limit": 0,
                "method.buffers": "average",
                "model": "mlp",
                "train.batch_size": "full",
                "train.shuffle": False,
            },
        ]
    }
    traces = (mask_trace("personal_share", "private share"),)

    class Options(Method.Options):
        personalization_rate: float = Field(
            0.25,
            ge=0,
            le=1,
            json_schema_extra={"symbol": "p"},
            description="share of a layer's free entries that turn personal at once, p",
        )
        personalization_limit: float = Field(
            0.5,
            ge=0,
            le=1,
            json_schema_extra={"symbol": "alpha"},
            description="largest share of a layer that becomes personal, alpha",
        )
        mask_interval: int = Field(1, ge=1, description="rounds from one growth of the masks to the next")
        scope: Literal["layer", "global"] = Field(
            "layer", description="select per parameter tensor, or from all at once"
        )
        mask_biases: bool = Field(False, description="biases and the like may turn personal, too")
        delta_reference: Literal["round_start", "last_update"] = Field(
            "round_start", description="change counts from the received model, or from the last growth of the mask"
        )
        newly_selected: Literal["from_server", "keep_local"] = Field(
            "from_server", description="new personal entries start from the mean, or keep their trained value"
        )
        clip_norm: float | None = Field(None, gt=0, description="largest norm of a gradient; none: not clipped")
        weighting: Literal["samples", "uniform"] = Field(
            "uniform", description="weight of a client where it shares: the same, or its training samples"
        )
        buffers: Literal["average", "private"] = Field(
            "private", description="running statistics: never leave the client, or averaged with the parameters"
        )

    train_defaults: ClassVar[dict[str, Any]] = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.0}
    needs = frozenset({"epochs"})
    also_sends = "their mask"

    @dataclass
    class State(PrivateState):
        """mask: personal entries; kept: entries that start from the client's own `trained` values; all `[N]`.

        reference: the model `[N]` at the last growth of the mask.
        """

        trained: Tensor | None = None
        mask: Tensor | None = None
        kept: Tensor | None = None
        reference: Tensor | None = None

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return 2 * super().steps(options, train, samples, public)

    def check(self) -> tuple[str, ...]:
        self.refuse_changed_uploads()
        train = self.context.train
        if train.optimizer != "sgd":
            raise ConfigError(f"train.optimizer = '{train.optimizer}': fedselect is defined for sgd only; leave it out")
        if not train.epochs:
            raise ConfigError("train.epochs = 0: fedselect trains at least 1 epoch")
        return ()

    def receive(self, client: Client[State]) -> Weights:
        received, state = super().receive(client), client.state
        if state.trained is None or state.kept is None:
            return received
        return received.replace(params=choose(state.kept, state.trained, received.params))

    def train(self, client: Client[State], received: Weights) -> Upload:
        state = client.state
        mask = torch.zeros_like(received.params, dtype=torch.bool) if state.mask is None else state.mask
        trained = self._in_turns(client, received, mask)
        state.trained, state.mask = trained.params, self._next_mask(client, mask, received.params, trained.params)
        state.kept = state.mask if self.options.newly_selected == "keep_local" else mask
        return self.upload(
            client,
            trained,
            traces={"personal_share": float(state.mask.sum()) / len(mask)},
            params=sparse(without(trained.params, state.kept), int((~state.kept).sum())),
            mask=mask_to_bits(state.kept),
        )

    def reference(self, message: Message, upload: Upload) -> Tensor:
        """The received parameters, and 0 where the client sends nothing."""
        return without(message.params, bits_to_mask(upload.mask, len(message.params)).to(message.params.device))

    def _in_turns(self, client: Client[State], model: Weights, mask: Tensor) -> Weights:
        """LocalAlt: in every epoch a pass over the data for the personal part, then one for the shared part."""
        parts = {name: part for name, part in {"personal": mask, "shared": ~mask}.items() if holds_one(part)}
        steps = {name: self._step(client, name, part.to(model.params.dtype)) for name, part in parts.items()}
        for epoch in range(self.context.train.epochs if client.epochs is None else client.epochs):
            for name, step in steps.items():
                model = client.fit(model, client.train, f"{name}/{epoch}", Amount(epochs=1), step=step)
        return model

    def _step(self, client: Client[State], name: str, part: Tensor) -> Step:
        """Steps that move only the part of the model where `[N]` is 1."""
        train, clip = self.context.train, self.options.clip_norm
        return Step(
            part_of_edited if train.weight_decay or clip else part_of_gradient,
            rule=partial(torch.optim.SGD, momentum=train.momentum),
            memory=self._memory(client, name, part),
            part=part,
            limit=inf if clip is None else clip,
            weight_decay=train.weight_decay,
        )

    def _memory(self, client: Client[State], name: str, part: Tensor) -> dict[str, Any]:
        """Momentum of a part, paused in the other's passes; kept across rounds with train.keep_optimizer.

        Entries that became personal since then must not move in passes of the shared part.
        """
        memory = {} if (kept := client.memory(name)) is None else kept
        memory["optimizer"] = {key: velocity * part for key, velocity in memory.get("optimizer", {}).items()}
        return memory

    def _next_mask(self, client: Client[State], mask: Tensor, start: Tensor, trained: Tensor) -> Tensor:
        """GradSelect: the next mask `[N]` in rounds in which masks grow; start: the received model."""
        options, state = self.options, client.state
        if client.round % options.mask_interval:
            return mask
        if options.delta_reference == "last_update":
            start = client.initial.params if state.reference is None else state.reference
            state.reference = trained
        compete = competing_entries(self.context.layout, options.scope, options.mask_biases)
        rate, limit = options.personalization_rate, options.personalization_limit
        return grow_mask(mask, (trained - start).abs(), compete, rate, limit)

    def global_model(self, server: ServerState, initial: Weights) -> None:
        """None: every client has its own model."""

    def shared_part(self, server: ServerState, initial: Weights) -> Weights:
        """The server's vector: every entry is the mean over those that shared it last."""
        return self.whole_model(server, initial)

    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        before, layout = server.params, self.context.layout
        super().aggregate(server, uploads)
        shared = [~bits_to_mask(u.mask, layout.size) for u in uploads]
        server.params = masked_mean([u.params for u in uploads], shared, self.weights(uploads), before)
        if server.traced:
            counts = mask_counts(torch.stack([u.mask for u in uploads]), layout.size)
            for name, share in shares_by_tensor("personal_share", layout.params, counts, len(uploads)).items():
                server.trace(name, share)


def part_of_gradient(g: Tensor, w: Tensor, s: Any) -> None:
    """Keeps a part of the gradient; `[N]`, or rows of clients `[K, N]`."""
    g.mul_(s.part)


def part_of_edited(g: Tensor, w: Tensor, s: Any) -> None:
    """Clips the whole gradient, adds decay and keeps a part; shapes as above."""
    g.mul_((s.limit / (g.norm(dim=-1, keepdim=True) + 1e-6)).clamp_(max=1))
    g.add_(w * s.weight_decay).mul_(s.part)


Scope = slice | Tensor


def competing_entries(layout: Layout, scope: str, mask_biases: bool) -> list[Scope]:
    """The scopes in which entries compete: a slice per layer, or one mask `[N]` of all."""
    layers = [slot for slot in layout.params if mask_biases or slot.name.endswith("weight")]
    parts: list[Scope] = [slice(slot.start, slot.stop) for slot in layers]
    if scope == "layer":
        return parts
    everything = torch.zeros(layout.size, dtype=torch.bool)
    for part in parts:
        everything[part] = True
    return [everything]


def grow_mask(mask: Tensor, change: Tensor, scopes: Sequence[Scope], rate: float, limit: float) -> Tensor:
    """The mask, bool `[N]`, and the entries of each scope that changed most (`change` `[N]`).

    rate: share of a scope's free entries that become personal; limit: largest personal share of a scope.
    """
    out = mask.clone()
    for scope in scopes:
        personal = mask[scope]
        free = int((~personal).sum())
        count = free - round((1 - rate) * free)
        room = floored_share(limit, len(personal)) - (len(personal) - free)
        out[scope] |= largest(change[scope], min(count, room), ~personal)
    return out
