"""FedDPA: dynamic personalised federated learning with adaptive differential privacy (Yang, Huang, Ye; NeurIPS 2023).

Private: the last model that the client trained, exact. Up: the update of the whole model, clipped and noised if asked;
down: the global model. The mask of personal parameters, those of high Fisher information, never travels.

Where we decide:
- The constraint that prepares parameters for clipping is the least certain part. We keep the personal parameters near
  their old values and the others at a distance of the clipping bound from the received ones, in unsquared norms over
  the whole model. The authors' code measures every tensor against the global model, personal or not
  (`constraint_form=layer_norm` with `constraint_reference=global`).
- The mask is a boolean one and frozen entries do not move at all; the authors' code takes a value of 0 for frozen.
- A tensor whose Fisher information is constant is shared: min-max makes it 0.
- Noise is divided among the participants of the round, in the authors' code among all clients.
- Clipping and noise are off by default, since benchmarks use the method without them. The optimiser is the run's.
- FedOBP's benchmark of "FedDPA" is `threshold_mode=quantile` with `training=joint`, and neither constraint nor privacy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.aggregation.means import weighted_mean
from fedbench.aggregation.ranks import above_quantile, min_max
from fedbench.config import TrainConfig
from fedbench.engine.fit import Move
from fedbench.engine.pulls import pull_to
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, zero_bytes
from fedbench.methods.server import ServerState
from fedbench.module.layout import shares_by_tensor
from fedbench.module.masks import choose, holds_one
from fedbench.module.weights import Weights
from fedbench.results.trace import mask_trace


@dataclass(eq=False)
class MergedByFisher(Weights):
    """A received model with the client's own values where the mask, bool `[N]`, is 1."""

    mask: Tensor


class FedDPA(Method["FedDPA.Options", "FedDPA.State"]):
    """Parameters of high Fisher information are personal; both kinds are trained in turn, near their start."""

    about = About(
        "parameters of high Fisher information stay private, updates are made for clipping and noise",
        "parameter decoupling",
        "Yang et al., NeurIPS",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "local": {"method.threshold": -1, "method.lambda_1": 0, "method.buffers": "private"}
    }
    traces = (mask_trace("personal_share", "private share"),)

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

    @dataclass
    class State(PrivateState):
        """local: the client's last trained model `[N]`."""

        local: Tensor | None = None

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return super().steps(options, train, samples, public) * (2 if options.training == "alternate" else 1)

    def check(self) -> Iterator[str]:
        self.refuse_private_steps("squared gradients of single samples")
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
        if options.noise_multiplier and not options.clip:
            yield "feddpa: noise on updates that are not clipped promises no privacy: set method.clip = true"

    def receive(self, client: Client[State]) -> MergedByFisher:
        shared, local = super().receive(client), client.state.local
        start = client.initial.params if local is None else local
        mask = self.mask(client.learner.squared_gradients(shared.replace(params=start), client.train))
        return MergedByFisher(choose(mask, start, shared.params), shared.buffers, shared.counters, mask)

    def mask(self, fisher: Tensor) -> Tensor:
        """bool `[N]`: personal parameters, from their Fisher information, tensor by tensor."""
        parts = (min_max(fisher[slot.start : slot.stop]) for slot in self.context.layout.params)
        if self.options.threshold_mode == "quantile":
            return torch.cat([above_quantile(part, self.options.threshold) for part in parts])
        return torch.cat(list(parts)) > self.options.threshold

    def train(self, client: Client[State], received: Weights) -> Upload:
        assert isinstance(received, MergedByFisher)
        joint = self.options.training == "joint"
        trained = client.fit(received, client.train) if joint else self.alternate(client, received)
        client.state.local = trained.params
        shares = shares_by_tensor("personal_share", self.context.layout.params, received.mask)
        shares["personal_share"] = float(received.mask.sum()) / len(received.mask)
        return self.upload(client, trained, traces=shares, params=self.update(client, trained.params))

    def alternate(self, client: Client[State], received: MergedByFisher) -> Weights:
        """The personal parameters first, then the others."""
        options, mask, slots = self.options, received.mask.cpu(), self.context.layout.params
        reference = client.message.params if options.constraint_reference == "global" else received.params
        trained: Weights = received
        stream = "fit"
        phases = ((mask, options.lambda_1, 0.0), (~mask, options.lambda_2, options.clipping_bound))
        for part, weight, goal in phases:
            if holds_one(part):
                form, start = options.constraint_form, trained.params
                pull = pull_to(reference, start, part, slots, form, weight, goal) if weight else None
                trained = client.fit(trained, client.train, stream, move=Move(part), step=pull)
                stream = "shared"
        return trained

    def update(self, client: Client[State], trained: Tensor) -> Tensor:
        """Delta `[N]`: the change of the global model by training; clipped and noised in float64."""
        options, update = self.options, trained - client.message.params
        if not options.clip and not options.noise_multiplier:
            return update
        update = update.to(torch.float64)
        if options.clip:
            update.div_(max(1.0, float(update.norm()) / options.clipping_bound))
        if options.noise_multiplier:
            participants = int(client.message.participants)
            deviation = noise_deviation(options.clipping_bound, options.noise_multiplier, participants)
            noise = torch.randn(len(update), dtype=torch.float64, generator=client.generator("noise"))
            update.add_(noise.to(update.device), alpha=deviation)
        return update.to(trained.dtype)

    def reference(self, message: Message, upload: Upload) -> Tensor:
        """0: clients send an update."""
        return torch.zeros_like(message.params)

    def send(self, server: ServerState, client: int) -> Message:
        return super().send(server, client).add(participants=zero_bytes(len(server.participants)))

    @mean_suffices
    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        before = server.params
        super().aggregate(server, uploads)
        server.params = weighted_mean([before, *(u.params for u in uploads)], [1.0, *self.weights(uploads)])


def noise_deviation(bound: float, multiplier: float, participants: int) -> float:
    """Standard deviation of a client's noise: the variances of all participants add up to (bound * multiplier)^2."""
    return bound * multiplier / sqrt(participants)
