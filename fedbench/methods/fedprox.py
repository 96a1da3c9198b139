"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith; MLSys 2020).

FedAvg with a proximal pull to the received model (eq. 2), uneven local work of stragglers (sec. 5.2) and an adaptive
weight of the pull (sec. 5.3.2). Private: nothing. The pull is part of the loss and goes through momentum like the data
gradient; some popular code applies it after momentum, or forgets the half in mu/2.
"""

from collections.abc import Mapping
from math import floor
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.learner import seeds
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server, Upload


class FedProx(Method):
    """The local loss gets (mu / 2) ||w - received||^2."""

    class Options(Method.Options):
        mu: float = Field(0.01, ge=0, description="weight of the proximal term, eq. 2")
        mu_schedule: Literal["constant", "adaptive"] = Field(
            "constant", description="adaptive: mu + 0.1 when the loss rises, - 0.1 after five falls, sec. 5.3.2"
        )
        straggler_fraction: float = Field(0.0, ge=0, le=1, description="share of participants with less work, sec. 5.2")
        straggler_policy: Literal["keep", "drop"] = Field("keep", description="average partial work, or drop it")

    wire: Mapping[str, float] = {"counters": 0, "mu": 0, "work": 0}

    def warnings(self) -> list[str]:
        rate = self.context.train.lr * self.options.mu
        if rate < 2:
            return []
        return [f"fedprox: lr x mu = {rate:g} is at least 2, the proximal steps diverge: lower one of them"]

    def open(self, server: Server) -> None:
        super().open(server)
        server.mu, server.calm, server.last_loss, server.work = self.options.mu, 0, None, {}

    def prepare(self, server: Server) -> None:
        server.work = self._stragglers(server)

    def _stragglers(self, server: Server) -> dict[int, int]:
        """Epochs (or steps) of this round's stragglers, from 1 to the full amount."""
        count = floor(self.options.straggler_fraction * len(server.participants) + 1e-9)
        if not count:
            return {}
        draw = seeds.numpy_generator(server.context.seed, server.round, "stragglers")
        chosen = sorted(draw.choice(server.participants, count, replace=False).tolist())
        most = self.context.train.steps or self.context.train.epochs
        return {client: int(draw.integers(1, most + 1)) if most else 0 for client in chosen}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        message.tensors["mu"] = torch.tensor(server.mu, dtype=torch.float64)
        if client in server.work:
            message.tensors["work"] = torch.tensor(server.work[client])
        return message

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        amount: dict[str, Any] = {}
        if "work" in download:
            amount = {"steps" if self.context.train.steps else "epochs": int(download.work)}
        pull: dict[str, Any] = {}
        if float(download.mu) > 0:
            state = {"anchor": received.params.clone(), "mu": download.mu.to(received.params.dtype)}
            pull = {"gradient": proximal_pull, "state": state}
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"), **amount, **pull)
        return self.upload(client, trained)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        if self.options.straggler_policy == "drop":
            uploads = [u for u in uploads if u.client not in server.work]
        if uploads:
            super().aggregate(server, uploads)

    def survey(self, server: Server) -> Message | None:
        if self.options.mu_schedule == "constant" or server.round == 0:
            return None
        return super().download(server, 0)

    def answer(self, client: Client, question: Message) -> Message:
        loss = client.learner.loss(self.receive(client, question), client.train)
        return Message({"loss": torch.tensor(loss, dtype=torch.float64)}, {"loss": 32})

    def conclude(self, server: Server, answers: dict[int, Message]) -> None:
        sizes = self.context.sizes
        total = sum(sizes[i] * float(answers[i].loss) for i in sorted(answers))
        self.adapt(server, total / sum(sizes[i] for i in answers))

    def adapt(self, server: Server, loss: float) -> None:
        """The adaptive rule of sec. 5.3.2, on the loss of the new global model."""
        if server.last_loss is not None:
            if loss > server.last_loss:
                server.mu, server.calm = server.mu + 0.1, 0
            else:
                server.calm += 1
            if server.calm == 5:
                server.mu, server.calm = max(0.0, server.mu - 0.1), 0
        server.last_loss = loss

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        return {(-1, "mu"): server.mu} if self.options.mu_schedule == "adaptive" else {}


def proximal_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Add mu (w - anchor) to the gradient; `[N]`, or a stack of clients `[K, N]`."""
    g.addcmul_(w - s.anchor, s.mu)
