"""LG-FedAvg (Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency; preprint 2020).

Local representations under a global classifier, the mirror image of FedPer. Private: the body and its running
statistics. Up and down: the head, and what `extra_shared` adds; in the rounds of pre-training the whole model.

Where we decide:
- The global part is the declared head. The authors keep the last tensors by number, one to three by data set.
- Every client starts from the run's model. The authors' code demands a FedAvg checkpoint, which those who compare with
  it do not mention; `pretrain_rounds` makes one, out of the run's own rounds.
- Heads are weighted by images (the paper); the code averages uniformly. It also reports the mean of every client's best
  test accuracy over the rounds, which selects on test data and is not done here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Context, Message, Method, Server, Upload


class LGFedAvg(Method):
    """Every client keeps its own body; the heads are averaged."""

    class Options(Method.Options):
        pretrain_rounds: int = Field(
            0, ge=0, description="first rounds that are plain fedavg, whose model every client then goes on from"
        )
        extra_shared: tuple[str, ...] = Field((), description="dotted names of further shared layers")

    needs_head = True
    wire: Mapping[str, float] = {"counters": 0, "start_params": 0, "start_buffers": 0, "start_counters": 0}
    """The start of a client's body is counted as the download of the rounds that make it."""

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self.fedavg = Method(options, context)

    def check(self) -> None:
        if self.options.pretrain_rounds > self.context.rounds:
            raise ConfigError(
                f"method.pretrain_rounds = {self.options.pretrain_rounds}: they count in rounds, of which there are "
                f"{self.context.rounds}; take at most that many"
            )

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = layout.mask_of(self.options.extra_shared)
        return layout.mask("body") & ~params, layout.buffer_mask("body") & ~buffers

    def receive(self, client: Client, download: Message) -> Weights:
        if "start_params" in download:
            start = Message({n: download.tensors[f"start_{n}"] for n in ("params", "buffers", "counters")})
            client = replace(client, initial=self.fedavg.receive(client, start))
        return super().receive(client, download)

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        if client.round <= self.options.pretrain_rounds:
            return self.fedavg.fit(client, received, download)
        return super().fit(client, received, download)

    def open(self, server: Server) -> None:
        """start: the model that pre-training has come to; waiting: clients whose body is still that model's."""
        super().open(server)
        server.start, server.waiting = {}, []
        if self.options.pretrain_rounds:
            server.waiting = list(range(self.context.clients))
            self.fedavg.open(server)
            self._split(server)

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        if client in server.waiting:
            message.tensors.update(server.start)
        if server.round <= self.options.pretrain_rounds:
            message.charge = server.start["start_params"].nbytes + server.start["start_buffers"].nbytes
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        if server.round <= self.options.pretrain_rounds:
            self._split(server)
            return
        trained = {upload.client for upload in uploads}
        server.waiting = [client for client in server.waiting if client not in trained]
        if not server.waiting:
            server.start = {}

    def _split(self, server: Server) -> None:
        """Keep the whole model, which the server holds, for clients to start from, and go on with its shared part."""
        server.start = {
            "start_params": server.params,
            "start_buffers": server.buffers,
            "start_counters": server.counters,
        }
        buffers = self.fedavg.shared_buffers.put(server.initial.buffers, server.buffers)
        server.params, server.buffers = self.shared.take(server.params), self.shared_buffers.take(buffers)
