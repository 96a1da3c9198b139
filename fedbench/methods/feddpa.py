"""FedDPA: dynamic personalised federated learning with adaptive differential privacy (Yang, Huang, Ye; NeurIPS 2023).

Private: the last model that the client trained, exact. Up: the update of the whole model, clipped and noised if asked;
down: the global model. The mask of personal parameters, those of high Fisher information, never travels.

Where we decide:
- The constraint that makes parameters ready for clipping is the least certain part. We keep the personal parameters
  near what they were and the others at a distance of the clipping bound from the received ones, in unsquared norms over
  the whole model. The authors' code measures every tensor against the global model, personal or not
  (`constraint_form=layer_norm` with `constraint_reference=global`).
- The mask is a boolean one and frozen entries do not move at all; the authors' code takes a value of 0 for frozen.
- A tensor whose Fisher information is constant is shared: min-max makes it 0.
- Noise is divided among the participants of the round, in the authors' code among all clients.
- Clipping and noise are off unless asked for, since benchmarks use the method without them. The optimiser is the run's.
- FedOBP's benchmark of "FedDPA" is `threshold_mode=quantile` with `training=joint`, and neither constraint nor privacy.

Longer than other method files because of the variants of the constraint.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import above_quantile, min_max, weighted_mean
from fedbench.bits import choose, holds_one, places
from fedbench.errors import ConfigError
from fedbench.learner.layout import Slot
from fedbench.learner.optimizers import LITTLE
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Received, Server, Upload


class FedDPA(Method):
    """Parameters of high Fisher information are personal; both kinds are trained in turn, near to what they were."""

    class Options(Method.Options):
        threshold: float = Field(
            0.4, ge=-1, le=1, description="personal is Fisher information above it, tau in [0, 1]; -1: everything"
        )
        threshold_mode: Literal["value", "quantile"] = Field(
            "value", description="tau is a value after min-max in every tensor, or a quantile of every tensor"
        )
        lambda_1: float = Field(0.1, ge=0, description="weight of the constraint on personal parameters")
        lambda_2: float = Field(0.05, ge=0, description="weight of the constraint on shared parameters")
        clipping_bound: float = Field(0.5, gt=0, description="C, largest norm of an update, and goal of the constraint")
        constraint_form: Literal["norm", "squared", "layer_norm"] = Field(
            "norm", description="distance of the part in training, its square, or distances of all tensors added up"
        )
        constraint_reference: Literal["received", "global"] = Field(
            "received", description="distance from what the client starts from, or from the global model"
        )
        training: Literal["alternate", "joint"] = Field(
            "alternate", description="personal, then shared parameters; or all at once without constraints"
        )
        clip: bool = Field(False, description="clip updates to clipping_bound")
        noise_multiplier: float = Field(
            0.0, ge=0, description="noise of the mean update, in clipping bounds, shared out among the participants"
        )

    wire: Mapping[str, float] = {"counters": 0, "participants": 0}

    def check(self) -> None:
        options = self.options
        if options.threshold < 0 and (options.threshold != -1 or options.threshold_mode == "quantile"):
            raise ConfigError(
                f"method.threshold = {options.threshold:g}: must be a number in [0, 1], or -1 with "
                "method.threshold_mode = value"
            )
        if self.context.train.keep_optimizer and options.training == "alternate":
            raise ConfigError(
                "train.keep_optimizer = true: method.training = alternate starts every phase with a fresh optimiser; "
                "leave it out or set method.training = joint"
            )

    def warnings(self) -> list[str]:
        if self.options.clip or not self.options.noise_multiplier:
            return []
        return ["feddpa: noise on updates that are not clipped promises no privacy: set method.clip = true"]

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        """The received model with the client's own numbers where the mask is 1."""
        shared = super().receive(client, download)
        own = client.state.get("local", client.initial.params)
        fisher = client.learner.squared_gradients(shared.replace(params=own), client.train)
        mask = self.mask(fisher)
        return Received(choose(mask, own, shared.params), shared.buffers, shared.counters, {"mask": mask})

    def mask(self, fisher: Tensor) -> Tensor:
        """bool `[N]`: personal parameters, from their Fisher information, tensor by tensor."""
        parts = (min_max(fisher[slot.start : slot.stop]) for slot in self.context.layout.params)
        if self.options.threshold_mode == "quantile":
            return torch.cat([above_quantile(part, self.options.threshold) for part in parts])
        return torch.cat(list(parts)) > self.options.threshold

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        assert isinstance(received, Received)
        mask = received.extra["mask"]
        if self.options.training == "joint":
            trained = client.learner.fit(received, client.train, memory=client.memory("fit"))
        else:
            reference = download.params if self.options.constraint_reference == "global" else received.params
            trained = self._alternate(client, received, mask.cpu(), reference)
        client.state["local"] = trained.params
        upload = self.upload(client, trained, traces=mask_shares(self.context.layout.params, mask))
        upload.tensors["params"] = self._update(client, trained.params, download)
        return upload

    def _alternate(self, client: Client, received: Weights, mask: Tensor, reference: Tensor) -> Weights:
        """The personal parameters first, then the others."""
        options, trained, purpose = self.options, received, "fit"
        phases = ((mask, options.lambda_1, 0.0), (~mask, options.lambda_2, options.clipping_bound))
        for part, weight, goal in phases:
            if holds_one(part):
                constraint = self._constraint(trained.params, reference, part, weight, goal) if weight else {}
                trained = client.learner.fit(trained, client.train, purpose=purpose, train_only=part, **constraint)
                purpose = "shared"
        return trained

    def _constraint(self, start: Tensor, reference: Tensor, part: Tensor, weight: float, goal: float) -> dict[str, Any]:
        """What keeps a part, which alone moves, at the distance `goal` from the reference: arguments of a fit."""
        scalars = {"weight": weight, "goal": goal}
        state = {name: reference.new_tensor(value) for name, value in scalars.items()}
        if self.options.constraint_form == "layer_norm":
            state |= {"anchor": reference, "room": torch.empty_like(reference)}
            return {"gradient": partial(layer_norm_pull, self.context.layout.params), "state": state}
        (whole, few), own = PULLS[self.options.constraint_form], places(part)
        if len(own) <= LITTLE * len(part):  # it is stepped by itself, so it is pulled by itself
            own = own.to(reference.device)
            state |= {"part": own, "anchor": reference[own]}
        else:  # the distance of a part is that of the whole from where the others stay
            state["anchor"] = choose(part.to(reference.device), reference, start)
        state["room"] = torch.empty_like(state["anchor"])
        return {"gradient": few if "part" in state else whole, "state": state}

    def _update(self, client: Client, trained: Tensor, download: Message) -> Tensor:
        """Delta `[N]`: what training changed in the global model; clipped and noised in float64."""
        options, update = self.options, trained - download.params
        if not options.clip and not options.noise_multiplier:
            return update
        update = update.to(torch.float64)
        if options.clip:
            update.div_(max(1.0, float(update.norm()) / options.clipping_bound))
        if options.noise_multiplier:
            deviation = noise_deviation(options.clipping_bound, options.noise_multiplier, int(download.participants))
            noise = torch.randn(len(update), dtype=torch.float64, generator=client.generator("noise"))
            update.add_(noise.to(update.device), alpha=deviation)
        return update.to(trained.dtype)

    # -- the server half ----------------------------------------------------------------------------------------------

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        message.tensors["participants"] = torch.tensor(len(server.participants))
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        before = server.params
        super().aggregate(server, uploads)
        server.params = weighted_mean([before, *(u.params for u in uploads)], [1.0, *self.weights(uploads)])


def norm_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Add the gradient of weight / 2 * |distance - goal|, distance from the anchor."""
    offset, distance = offset_of(w, s.anchor, s.room)
    g.addcmul_(offset, norm_slope(distance, s.goal, s.weight))


def squared_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Add the gradient of weight / 2 * (distance - goal)^2."""
    offset, distance = offset_of(w, s.anchor, s.room)
    g.addcmul_(offset, squared_slope(distance, s.goal, s.weight))


def norm_pull_of_part(g: Tensor, w: Tensor, s: Any) -> None:
    """`norm_pull` where `s.part` `[n]` is, with an anchor for these entries alone."""
    offset, distance = offset_of(w.gather(-1, s.part), s.anchor, s.room)
    g.scatter_add_(-1, s.part, offset.mul_(norm_slope(distance, s.goal, s.weight)))


def squared_pull_of_part(g: Tensor, w: Tensor, s: Any) -> None:
    """`squared_pull` where `s.part` `[n]` is, with an anchor for these entries alone."""
    offset, distance = offset_of(w.gather(-1, s.part), s.anchor, s.room)
    g.scatter_add_(-1, s.part, offset.mul_(squared_slope(distance, s.goal, s.weight)))


PULLS = {"norm": (norm_pull, norm_pull_of_part), "squared": (squared_pull, squared_pull_of_part)}


def norm_slope(distance: Tensor, goal: Tensor, weight: Tensor) -> Tensor:
    return (distance - goal).sign_().mul_(weight / 2).div_(above_zero(distance))


def squared_slope(distance: Tensor, goal: Tensor, weight: Tensor) -> Tensor:
    return (distance - goal).mul_(weight).div_(above_zero(distance))


def offset_of(w: Tensor, anchor: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
    """From the anchor to `w`, and how far that is."""
    offset = torch.sub(w, anchor, out=room)
    return offset, torch.linalg.vector_norm(offset, dim=-1, keepdim=True)  # `norm` adds a third to it


def above_zero(distance: Tensor) -> Tensor:
    """To divide by: an offset of 0 pulls nowhere. One so short that its float32 norm is 0 hardly does."""
    return distance.clamp(min=1e-20)


def layer_norm_pull(slots: Sequence[Slot], g: Tensor, w: Tensor, s: Any) -> None:
    """Add the gradient of weight / 2 * |T - goal|, T the sum of all tensors' distances."""
    offset, total = torch.sub(w, s.anchor, out=s.room), torch.zeros_like(w[..., :1])
    for slot in slots:
        tensor = offset[..., slot.start : slot.stop]
        distance = torch.linalg.vector_norm(tensor, dim=-1, keepdim=True)
        tensor.div_(above_zero(distance))
        total.add_(distance)
    g.add_(offset.mul_((total - s.goal).sign_().mul_(s.weight / 2)))


def noise_deviation(bound: float, multiplier: float, participants: int) -> float:
    """Standard deviation of a client's noise: the variances of all participants add up to (bound * multiplier)^2."""
    return bound * multiplier / sqrt(participants)


def mask_shares(slots: Sequence[Slot], mask: Tensor) -> dict[str, float]:
    """Share of personal parameters in the model and in every tensor."""
    counts = torch.stack([mask[slot.start : slot.stop].sum() for slot in slots]).tolist()
    shares = {f"mask_share/{slot.name}": count / slot.size for slot, count in zip(slots, counts, strict=True)}
    return {"mask_share": sum(counts) / len(mask), **shares}
