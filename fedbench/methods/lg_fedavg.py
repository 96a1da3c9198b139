"""LG-FedAvg (Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency; preprint 2020).

Local representations under a global classifier, the mirror image of FedPer. Private: the body and its running
statistics. Up and down: the head, and what `extra_shared` adds; in the rounds of pre-training the whole model.

Where we decide:
- The global part is the declared head. The authors keep the last tensors by number, one to three by data set.
- Every client starts from the run's model. The authors' code requires a FedAvg checkpoint, which comparisons do not
  mention; `pretrain_rounds` trains one within the run's rounds.
- Heads are weighted by images (the paper); the code averages uniformly. It also reports the mean of every client's best
  test accuracy over the rounds, which selects on test data and is not done here.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, model_message, zero_bytes
from fedbench.methods.server import Context, ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights


class LGFedAvg(Method["LGFedAvg.Options", PrivateState, "LGFedAvg.Server"]):
    """Every client keeps its own body; the heads are averaged."""

    about = About(
        "the body stays private, the heads are averaged", "parameter decoupling", "Liang et al., preprint", 2020
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.extra_shared": ["body"]}}

    class Options(Method.Options):
        pretrain_rounds: int = Field(
            0, ge=0, description="first rounds of plain fedavg, from whose model every client then continues"
        )
        extra_shared: list[str] = Field([], description="dotted names of further shared layers")

    @dataclass
    class Server(ServerState):
        """start: FedAvg's message of the pre-trained model; waiting: clients that start from it next."""

        start: dict[str, Tensor] = field(default_factory=dict)
        waiting: list[int] = field(default_factory=list)

    needs = frozenset({"head"})

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, context)
        self.fedavg = Method(options, context)

    def check(self) -> tuple[str, ...]:
        if self.options.pretrain_rounds > self.context.rounds:
            raise ConfigError(
                f"method.pretrain_rounds = {self.options.pretrain_rounds}: a run has {self.context.rounds} "
                "rounds; take at most that many"
            )
        if self.options.pretrain_rounds:
            self.refuse_newcomers("with method.pretrain_rounds the server forgets the model to start from")
        return ()

    def private(self, layout: Layout) -> Masks:
        return layout.masks("body") & ~layout.under(self.options.extra_shared)

    def common_shapes(self) -> list[tuple[int, ...]]:
        """Of the head; of the whole model if it is trained together first."""
        return (self.fedavg if self.options.pretrain_rounds else self).shared_shapes()

    def receive(self, client: Client) -> Weights:
        message = client.message
        if client.round < self.options.pretrain_rounds:
            return self.fedavg.receive(client)
        if "start_params" in message:
            start = model_message(message.start_params, message.start_buffers, message.start_counters)
            client = replace(client, initial=self.fedavg.receive(replace(client, message=start)))
        return super().receive(client)

    def train(self, client: Client, received: Weights) -> Upload:
        if client.round <= self.options.pretrain_rounds:
            return self.fedavg.train(client, received)
        return super().train(client, received)

    def start(self, initial: Weights) -> Server:
        if not self.options.pretrain_rounds:
            return super().start(initial)
        whole = self.fedavg.start(initial)
        everyone = list(range(self.context.clients))
        server = self.Server(whole.params, whole.buffers, whole.counters, waiting=everyone)
        self._split(server)
        return server

    def send(self, server: Server, client: int) -> Message:
        """The whole model in pre-training; its bytes do not count when a client later starts from it."""
        if server.round <= self.options.pretrain_rounds:
            return model_message(**server.start)
        message = super().send(server, client)
        if client in server.waiting:
            message.add(**{f"start_{name}": zero_bytes(part) for name, part in server.start.items()})
        return message

    @uses_aggregator
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        if server.round <= self.options.pretrain_rounds:
            server.params, server.buffers, server.counters = server.start.values()
            super().aggregate(server, uploads)
            self._split(server)
            return
        if server.round == self.options.pretrain_rounds + 1:
            server.aggregator = {}  # it was about the whole model
        super().aggregate(server, uploads)
        trained = {upload.client for upload in uploads}
        server.waiting = [client for client in server.waiting if client not in trained]
        if not server.waiting:
            server.start = {}

    def _split(self, server: Server) -> None:
        """Saves the server's whole model for clients to start from, and continues with its shared part."""
        server.start = {"params": server.params, "buffers": server.buffers, "counters": server.counters}
        server.params, server.buffers = self.shared_params.take(server.params), self.shared_buffers.take(server.buffers)
        server.counters = self.shared_counters.take(server.counters)
