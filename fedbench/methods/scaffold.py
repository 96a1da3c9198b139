"""SCAFFOLD: stochastic controlled averaging (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh; ICML 2020).

Private: the client's control, an estimate of its gradient. Up: the trained model and the change of the control; down:
the model and the server's control, which is the mean of all clients'. Every local step is corrected by the difference.

Where we decide:
- Averages are uniform (Algorithm 1). With `weighting=samples` models are weighted by the participants' images and
  control changes by their share of all clients' images, so that the server's control stays the weighted mean of all.
- Momentum is 0, as in the paper. With momentum m the correction goes through the velocity, and option II divides by
  lr times the sum of all steps' weights, which for m = 0 is their number; otherwise the controls diverge.
- What moves in unknown ways is refused with option II: Adam, a model's own optimiser, and a velocity kept over rounds.
- Controls start at zero. Running statistics have none: they are averaged like the models, whatever `global_lr` is.
- Gradients are not clipped; a widely copied version does so at norm 10.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import weighted_mean
from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Step
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.weights import Weights


class SCAFFOLD(Method["SCAFFOLD.Options", "SCAFFOLD.State", "SCAFFOLD.Server"]):
    """Local steps are corrected by the difference of the server's and the client's control."""

    about = About("control variates correct the drift of local steps", "global", "Karimireddy et al., ICML", 2020)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"rounds": 1, "method.weighting": "samples"}}

    also_sends = "the change of their control variate"

    class Options(Method.UniformOptions):
        control: Literal["II", "I"] = Field(
            "II", description="new control, eq. 4: mean gradient of the steps (II), or that at the received model (I)"
        )
        global_lr: float = Field(
            1.0, gt=0, description="step from the old model towards the mean, eq. 5", json_schema_extra={"rate": "own"}
        )

    @dataclass
    class State(PrivateState):
        control: Tensor | None = None

    @dataclass
    class Server(ServerState):
        control: Tensor = UNSET

    train_defaults: ClassVar[dict[str, Any]] = {"momentum": 0.0}

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return options.control == "I"

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        more = Amount(epochs=1).steps_on(samples, train) if options.control == "I" else 0
        return super().steps(options, train, samples, public) + more

    def check(self) -> Iterable[str]:
        train = self.context.train
        if self.options.control == "II" and train.optimizer not in ("auto", "sgd"):
            raise ConfigError(
                f"train.optimizer = {train.optimizer}: the steps of method.control = II must be those of sgd; choose "
                "sgd, or method.control = I"
            )
        if train.clip_norm is not None or train.accumulate > 1:
            raise ConfigError(
                "train.clip_norm, train.accumulate: the controls of scaffold are gradients of whole steps of a batch; "
                "leave them out"
            )
        if train.keep_optimizer and train.momentum:
            raise ConfigError("train.keep_optimizer = true: with train.momentum > 0 a control would hold old gradients")
        return ()

    def train(self, client: Client[State], received: Weights) -> Upload:
        common = client.message.control
        control = torch.zeros_like(common) if client.state.control is None else client.state.control
        trained = client.fit(received, client.train, step=Step(add_correction, correction=common - control))
        made = velocity_weights(client.steps_made, self.context.train.momentum)
        if self.options.control == "I":
            new = whole_gradient(client, received)
        elif made:
            new = control - common + (received.params - trained.params) / (made * client.rate())
        else:
            new = control
        client.state.control = new
        return self.upload(client, trained, change=new - control)

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.control = torch.zeros_like(server.params)
        return server

    def send(self, server: Server, client: int) -> Message:
        return super().send(server, client).add(control=server.control)

    @uses_aggregator
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        before, sizes = server.params, self.context.sizes
        super().aggregate(server, uploads)
        if self.options.global_lr != 1:
            server.params = torch.lerp(before, server.params, self.options.global_lr)
        uniform = self.options.weighting == "uniform"
        shares = [1 / len(sizes) if uniform else u.samples / sum(sizes) for u in uploads]
        server.control = server.control + weighted_mean([u.change for u in uploads], shares)


def add_correction(g: Tensor, w: Tensor, s: Any) -> None:
    """Adds the difference of the controls to the gradient (eq. 3); `[N]`, or rows of clients `[K, N]`."""
    g.add_(s.correction)


def velocity_weights(steps: int, momentum: float) -> float:
    """The sum of all gradients' weights in a move of so many steps of rate 1: their number without momentum."""
    return sum((1 - momentum**left) / (1 - momentum) for left in range(1, steps + 1))


def whole_gradient(client: Client, model: Weights) -> Tensor:
    """Gradient `[N]` of the mean loss over the client's images, batch by batch in stored order, with weight decay."""
    total, images = torch.zeros_like(model.params, dtype=torch.float64), 0
    with client.training(model, client.train, "control", Amount(epochs=1, shuffle=False)) as training:
        for batch in training:
            total.add_(training.gradient(batch), alpha=len(batch[1]))
            images += len(batch[1])
    mean = (total / max(images, 1)).to(model.params)
    return mean.add_(model.params, alpha=client.learner.train.weight_decay)
