"""pFedMe (T Dinh, Tran, Nguyen; NeurIPS 2020): personal models by Moreau envelopes.

Private: the personal model theta_i, an output that the next round does not need, with its running statistics. Up and
down: the client's copy w_i of the global model, moved towards theta_i, and the running statistics, which follow
theta_i's passes. What is evaluated is theta_i, which aggregation does not change.

Where we decide:
- The mean is uniform, as Algorithm 1 says; the authors' code weights by images. beta moves parameters only: beyond 1 it
  could make variances negative.
- theta starts at the received model once a round and goes on between local rounds (`inner_start=warm`), as in the
  authors' code; the paper asks for an approximate minimiser only. Their code also decays theta by 1e-3; ours does not.
- personal_lr is 0.01, not the 0.09 of the authors' code, which diverges on a convolution net.
- The authors' code, and popular code after it, keeps theta as the optimiser's own list of parameters, which it writes
  over with w_i at the end of the round: what it calls the personal model is w_i.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import elementwise_max, weighted_mean
from fedbench.learner.loop import OwnSteps
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Server, Upload


class PFedMe(Method):
    """A personal model near the global one, which follows the personal models' pull."""

    class Options(Method.Options):
        lam: float = Field(15.0, ge=0, description="weight of the distance between theta and w, eq. 2")
        inner_steps: int = Field(5, ge=1, description="steps K of theta on each batch")
        personal_lr: float = Field(0.01, gt=0, description="learning rate of theta")
        beta: float = Field(1.0, gt=0, description="how far the server goes towards the mean, Algorithm 1")
        inner_start: Literal["warm", "centre"] = Field(
            "warm", description="where theta starts in a local round: where it was, or at w_i"
        )
        inner_weight_decay: float = Field(0.0, ge=0, description="decay of theta; 1e-3 in the authors' code")
        weighting: Literal["uniform", "samples"] = Field(
            "uniform", description="weight of a client in the mean: the same (Algorithm 1), or its training images"
        )
        update_all: bool = Field(
            False, description="everybody trains in every round and only the participants upload, Algorithm 1"
        )

    train_defaults: ClassVar[dict[str, Any]] = {"lr": 0.005, "momentum": 0.0, "weight_decay": 0.0}
    after_fit = "after_agg"
    own_steps = True
    wire: Mapping[str, float] = {"counters": 0, "drawn": 0}

    def warnings(self) -> list[str]:
        lines, options, lr = super().warnings(), self.options, self.context.train.lr
        if options.personal_lr * options.lam >= 2:
            lines.append(
                f"pfedme: personal_lr x lam = {options.personal_lr * options.lam:g} is at least 2, theta diverges: "
                "lower one of them"
            )
        if lr * options.lam > 1:
            lines.append(f"pfedme: lr x lam = {lr * options.lam:g} is above 1, w overshoots theta: lower one of them")
        return lines

    def trainers(self, drawn: Sequence[int]) -> list[int]:
        return list(range(self.context.clients)) if self.options.update_all else list(drawn)

    # -- the client half ----------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        options, learner = self.options, client.learner
        step = partial(
            local_round,
            inner_steps=options.inner_steps,
            restart=options.inner_start == "centre",
            lam=options.lam,
            decay=options.inner_weight_decay,
            rate=options.personal_lr * learner.lr_factor,
            pull=self.context.train.lr * learner.lr_factor * options.lam,
        )
        centre = received.params.clone()
        theta = learner.fit(received, client.train, step=step, state={"centre": centre})
        client.state.update(theta=theta.params, theta_buffers=theta.buffers, theta_counters=theta.counters)
        upload = self.upload(client, theta.replace(params=centre))
        client.fitted = theta
        if "drawn" in download and not bool(download.drawn):
            upload.tensors = {}
        return upload

    def personal(self, client: Client, download: Message) -> Predictor:
        held = client.state
        if "theta" not in held:
            return client.initial
        return Weights(held["theta"], held["theta_buffers"], held["theta_counters"])

    # -- the server half ----------------------------------------------------------------------------------------------

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        if self.options.update_all:
            message.tensors["drawn"] = torch.tensor(client in server.participants)
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        uploads = [u for u in uploads if "params" in u]
        if not uploads:
            return
        weights, beta = self.weights(uploads), self.options.beta
        rows, shares = [server.params, *(u.params for u in uploads)], [1 - beta, *(beta * x for x in weights)]
        server.params = weighted_mean(rows, shares)
        server.buffers = weighted_mean([u.buffers for u in uploads], weights)
        server.counters = elementwise_max([u.counters for u in uploads])


def local_round(
    passes: OwnSteps,
    theta: Tensor,
    s: Any,
    *,
    inner_steps: int,
    restart: bool,
    lam: float,
    decay: float,
    rate: float,
    pull: float,
) -> None:
    """Steps of theta `[N]` on one batch towards the minimum near `s.centre` (w_i); then w_i goes towards theta."""
    if restart:
        theta.copy_(s.centre)
    for _ in range(inner_steps):
        g = passes.gradient().add_(theta - s.centre, alpha=lam).add_(theta, alpha=decay)
        theta.sub_(g, alpha=rate)
    s.centre.sub_(s.centre - theta, alpha=pull)
