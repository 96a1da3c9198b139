"""FedSelect, customised selection of parameters for fine-tuning (Tamirisa, Xie, Bao, Zhou, Arel, Shamsian; CVPR 2024).

Private: a growing mask of personal parameters, their values, the float buffers. Up: the other parameters and the mask;
down: the server's vector. In each local epoch the personal parameters are trained first, then the others.

Where we decide, mostly with the authors' code:
- Selection per parameter tensor, of weights only, a share of the entries that are still free (`scope`, `mask_biases`).
  The code takes all entries above a quantile and looks at its bound afterwards, so that ties and the last step
  overshoot; here the number is exact, ties go to the lower index.
- A mask grows every round from that round's change, as in the paper; the code does it every third round from the change
  since the last time (`mask_interval`, `delta_reference`), and clips gradients (`clip_norm`).
- Averages and downloads use the mask that the round was trained with: what was just selected starts its private life
  from the mean (`newly_selected`). Every entry is averaged over those who share it, all with the same weight.
- A pass over an empty part is not run; the code runs it, which moves running statistics.
"""

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import bits_to_mask, largest, mask_counts, mask_to_bits, masked_mean
from fedbench.bits import choose, holds_one, without
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Context, Message, Method, Server, Upload


class FedSelect(Method):
    """Parameters that change most turn personal and are fine-tuned in turns with the shared ones."""

    class Options(Method.Options):
        personalization_rate: float = Field(
            0.25, ge=0, le=1, description="share of a layer's free entries that turn personal at once, p"
        )
        personalization_limit: float = Field(
            0.5, ge=0, le=1, description="largest share of a layer that becomes personal, alpha"
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
            "uniform", description="weight of a client where it shares: the same, or its training images"
        )
        buffers: Literal["average", "private"] = Field(
            "private", description="running statistics: never leave the client, or averaged with the parameters"
        )

    train_defaults: ClassVar[dict[str, Any]] = {"optimizer": "sgd", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.0}
    own_epochs = True

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self.scopes = scopes(context.layout, options.scope, options.mask_biases)

    def check(self) -> None:
        train = self.context.train
        if train.optimizer != "sgd":
            raise ConfigError(f"train.optimizer = '{train.optimizer}': fedselect is defined for sgd only; leave it out")
        if not train.epochs:
            raise ConfigError("train.epochs = 0: fedselect trains at least 1 epoch")

    def global_weights(self, server: Server) -> None:
        """No client holds the server's vector."""
        return None

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        received = super().receive(client, download)
        if "trained" not in client.state:
            return received
        return received.replace(params=choose(client.state["kept"], client.state["trained"], received.params))

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        held = client.state
        mask = held.get("mask", torch.zeros_like(received.params, dtype=torch.bool))
        trained = self._train(client, received, mask)
        grown = self._grown(client, mask, received.params, trained.params)
        kept = grown if self.options.newly_selected == "keep_local" else mask
        held |= {"trained": trained.params, "mask": grown, "kept": kept}
        traces = {"mask_share": float(grown.sum()) / len(grown)}
        upload = self.upload(client, trained, traces=traces, mask=mask_to_bits(kept))
        upload.tensors["params"] = without(trained.params, kept)  # only the others are sent, and counted
        upload.charge = upload.wire_bytes() - trained.params.element_size() * int(kept.sum())
        return upload

    def _train(self, client: Client, received: Weights, mask: Tensor) -> Weights:
        """LocalAlt: in every epoch a pass over the data for the personal part, then one for the shared part."""
        train, model, number = self.context.train, received, received.params.new_tensor
        limit = float("inf") if self.options.clip_norm is None else self.options.clip_norm
        scalars = {"limit": number(limit), "decay": number(train.weight_decay)}
        parts = {name: part for name, part in {"personal": mask, "shared": ~mask}.items() if holds_one(part)}
        states = {name: {"part": part.to(received.params.dtype), **scalars} for name, part in parts.items()}
        memories = {name: self._memory(client, name, part) for name, part in parts.items()}
        for epoch in range(train.epochs):
            for name in parts:
                model = client.learner.fit(
                    model,
                    client.train,
                    purpose=f"{name}/{epoch}",
                    epochs=1,
                    gradient=part_of_edited if train.weight_decay or self.options.clip_norm else part_of_gradient,
                    state=states[name],
                    memory=memories[name],
                    optimizer=partial(torch.optim.SGD, momentum=train.momentum),
                )
        return model

    def _memory(self, client: Client, name: str, part: Tensor) -> dict[str, Any]:
        """Momentum of a part, which rests during the other's passes; kept across rounds with train.keep_optimizer.

        What has turned personal since then must not go on moving in the passes of the shared part.
        """
        memory = client.memory(name)
        if memory is None:
            return {}
        held = memory.get("optimizer", {})
        memory["optimizer"] = {key: velocity * part for key, velocity in held.items()}
        return memory

    def _grown(self, client: Client, mask: Tensor, received: Tensor, trained: Tensor) -> Tensor:
        """GradSelect: the next mask `[N]`, in the rounds where masks grow."""
        if client.round % self.options.mask_interval:
            return mask
        start = received
        if self.options.delta_reference == "last_update":
            start = client.state.get("reference", client.initial.params)
            client.state["reference"] = trained
        return self.grown(mask, (trained - start).abs())

    def grown(self, mask: Tensor, change: Tensor) -> Tensor:
        """The mask `[N]` with the entries of each scope that changed most."""
        rate, limit, out = self.options.personalization_rate, self.options.personalization_limit, mask.clone()
        for scope in self.scopes:
            personal = mask[scope]
            free = int((~personal).sum())
            count = free - round((1 - rate) * free)
            room = int(limit * len(personal) + 1e-9) - (len(personal) - free)
            out[scope] |= largest(change[scope], min(count, room), ~personal)
        return out

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.shares = {}

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        before, size = server.params, self.context.layout.size
        super().aggregate(server, uploads)
        sent = [~bits_to_mask(u.mask, size) for u in uploads]
        server.params = masked_mean([u.params for u in uploads], sent, self.weights(uploads), before)
        counts = mask_counts(torch.stack([u.mask for u in uploads]), size)
        server.shares = {
            s.name: float(counts[s.start : s.stop].sum()) / (s.size * len(uploads))
            for s in self.context.layout.layers()
        }

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        return {(-1, f"mask_share/{layer}"): share for layer, share in server.shares.items()}


def scopes(layout: Layout, scope: str, mask_biases: bool) -> list[Any]:
    """Indices of the entries that compete with each other: slices of the layers, or one mask `[N]` of all."""
    layers = [s for s in layout.layers() if mask_biases or s.name.endswith("weight")]
    parts = [slice(s.start, s.stop) for s in layers]
    if scope == "layer":
        return parts
    everything = torch.zeros(layout.size, dtype=torch.bool)
    for part in parts:
        everything[part] = True
    return [everything]


def part_of_gradient(g: Tensor, w: Tensor, s: Any) -> None:
    """Leave a part of the gradient; `[N]`, or a stack of clients `[K, N]`."""
    g.mul_(s.part)


def part_of_edited(g: Tensor, w: Tensor, s: Any) -> None:
    """Clip the whole gradient, add decay, and leave a part of both; shapes as above."""
    g.mul_((s.limit / (g.norm(dim=-1, keepdim=True) + 1e-6)).clamp_(max=1))
    g.add_(w * s.decay).mul_(s.part)
