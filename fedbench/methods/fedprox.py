"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith; MLSys 2020).

FedAvg with a proximal pull to the received model (eq. 2), uneven local work of stragglers (sec. 5.2) and an adaptive
weight of the pull (sec. 5.3.2). Private: nothing. The pull is part of the loss and goes through momentum like the data
gradient; some popular code applies it after momentum, or forgets the half in mu/2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedbench.aggregation.ranks import floored_share
from fedbench.engine.fit import Amount, Step
from fedbench.methods.base import About, ExtraPass, Method, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, encoded, zero_bytes
from fedbench.methods.server import Context, ServerState
from fedbench.module import seeds
from fedbench.module.weights import Weights


class FedProx(ExtraPass["FedProx.Options", PrivateState, "FedProx.Server"]):
    """The local loss plus (mu / 2) ||w - received||^2."""

    about = About("fedavg with a proximal pull to the received model", "global", "Li et al., MLSys", 2020)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.mu": 0}}

    class Options(Method.Options):
        mu: float = Field(0.01, ge=0, description="weight of the proximal term, eq. 2")
        mu_schedule: Literal["constant", "adaptive"] = Field(
            "constant", description="adaptive: mu + 0.1 when the loss rises, - 0.1 after five falls, sec. 5.3.2"
        )
        straggler_fraction: float = Field(0.0, ge=0, le=1, description="share of participants with less work, sec. 5.2")
        straggler_policy: Literal["keep", "drop"] = Field("keep", description="average partial work, or drop it")

    @dataclass
    class Server(ServerState):
        mu: float = 0.0
        calm: int = 0
        last_loss: float | None = None

    def check(self) -> Iterator[str]:
        rate = self.context.train.lr * self.options.mu
        if rate >= 2:
            yield f"fedprox: lr x mu = {rate:g} is at least 2, the proximal steps diverge: lower one of them"

    def train(self, client: Client, received: Weights) -> Upload:
        mu = float(client.message.mu)
        pull = Step(proximal_pull, anchor=received.params, mu=mu) if mu else None
        return self.upload(client, client.fit(received, client.train, amount=affordable_amount(client), step=pull))

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.mu = self.options.mu
        return server

    def send(self, server: Server, client: int) -> Message:
        late = stragglers(self.context, server, self.options.straggler_fraction)
        work = {"work": zero_bytes(late[client])} if client in late else {}
        return super().send(server, client).add(mu=zero_bytes(server.mu), **work)

    @uses_aggregator
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        if self.options.straggler_policy == "drop":
            late = stragglers(self.context, server, self.options.straggler_fraction)
            uploads = [u for u in uploads if u.client not in late]
        if uploads:
            super().aggregate(server, uploads)
        if self.options.mu_schedule == "adaptive":
            server.trace("mu", server.mu)

    def question(self, server: Server) -> Message | None:
        """The new model, for its loss."""
        if self.options.mu_schedule == "constant" or server.round == 0:
            return None
        return super().send(server, 0)

    def answer(self, client: Client) -> Message:
        loss = client.learner.loss(self.receive(client), client.train)
        return Message(loss=encoded(zero_bytes(loss).tensor, bits=32))

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


def proximal_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Adds mu (w - anchor) to the gradient; `[N]`, or rows of clients `[K, N]`."""
    g.addcmul_(w - s.anchor, s.mu)


def stragglers(context: Context, server: ServerState, fraction: float) -> dict[int, int]:
    """Epochs (or steps) of this round's stragglers, from 1 to the full amount. fraction: of the participants."""
    count = floored_share(fraction, len(server.participants))
    if not count:
        return {}
    draw = seeds.numpy_generator(context.seed, server.round, "stragglers")
    chosen = sorted(draw.choice(server.participants, count, replace=False).tolist())
    most = context.train.steps or context.train.epochs
    return {client: int(draw.integers(1, most + 1)) if most else 0 for client in chosen}


def affordable_amount(client: Client) -> Amount:
    """The client's amount of work: `work` of its message, or all."""
    if "work" not in client.message:
        return Amount()
    work = int(client.message.work)
    return Amount(steps=work) if client.learner.train.steps else Amount(epochs=work)
