"""Hosts that keep what goes through them, end a run in the middle, or work in another order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbench.methods.base import Method
from fedbench.methods.messages import Message
from fedbench.module.weights import Weights
from fedbench.runtime.exchange import POOLED, ClientTask, Order, Relocation, Reply
from fedbench.runtime.host import Host
from fedbench.runtime.hosts import Hosts, InProcess
from fedbench.runtime.resolved import ResolvedRun


class Sent(NamedTuple):
    """What was sent to a client in an exchange, or came back: its fields as they were then, and their bytes.

    direction: down, up, question or answer; a field by its name.
    """

    number: int
    client: int
    direction: str
    tensors: dict[str, Tensor]
    sizes: dict[str, int]


class RecordingHosts(InProcess):
    """One host in this process that keeps what goes through it, of the run in `folder`.

    sent: messages and uploads of those that train, and questions and answers. trained: the parameters at a client after
    its training, by exchange and client. kept: the tensors that the server held after the last round, and what they
    were then; untouched: whether each of them was the same when the next round was aggregated.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.orders: list[Order] = []
        self.replies: list[Reply] = []
        self.tasks: dict[int, ClientTask] = {}
        self.sent: list[Sent] = []
        self.trained: dict[tuple[int, int], Tensor] = {}
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.untouched = True

    def watched(self, kind: type[Method]) -> type[Method]:
        """The method, with an `aggregate` that looks after what the server keeps."""
        aggregate = kind.aggregate

        @wraps(aggregate)
        def look(method: Any, server: Any, uploads: Any) -> None:
            self.untouched &= all(torch.equal(tensor, before) for tensor, before in self.kept)
            aggregate(method, server, uploads)
            self.kept = [(tensor, tensor.clone()) for tensor in leaves(server.state())]

        outgoing = kind.outgoing

        def keep_trained(method: Any, client: Any, received: Any, upload: Any) -> Any:
            if upload.trained is not None:
                self.trained[client.round - 1, client.id] = upload.trained.params.clone()
            return outgoing(method, client, received, upload)

        return variant(kind, aggregate=look, outgoing=wraps(outgoing)(keep_trained))

    def watching(self, run: ResolvedRun) -> ResolvedRun:
        """The run with its method watched."""
        return replace(run, method=self.watched(run.method))

    @property
    def host(self) -> Host:
        return self._host

    @property
    def reports(self) -> list[Any]:
        return [report for reply in self.replies for report in reply.reports]

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        for order in orders:
            down = "question" if order.extra else "down"
            self._keep(order.number, down, [(t.client, t.message) for t in order.tasks if t.train or order.extra])
        replies = super().exchange(orders, moves)
        for order, reply in zip(orders, replies, strict=True):
            self._keep(order.number, "up", [(r.client, r.upload) for r in reply.reports if r.upload])
            self._keep(order.number, "answer", [(r.client, r.answer) for r in reply.reports if r.answer])
        self.orders += orders
        self.replies += replies
        self.tasks |= {task.client: task for order in orders for task in order.tasks if task.client != POOLED}
        return replies

    def _keep(self, number: int, direction: str, messages: Sequence[tuple[int, Message]]) -> None:
        copies: dict[int, Tensor] = {}  # one of each tensor that several clients are sent
        for client, message in messages:
            for tensor in message.tensors.values():
                copies.setdefault(id(tensor), tensor.clone())
            tensors = {name: copies[id(tensor)] for name, tensor in message.tensors.items()}
            self.sent.append(Sent(number, client, direction, tensors, dict(message.sizes)))


class Backwards(InProcess):
    """One host in this process, whose clients take their turns from the last to the first."""

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        return super().exchange([replace(order, tasks=order.tasks[::-1]) for order in orders], moves)


class Stopped(Exception):
    """The run was ended on purpose."""


class Stopping:
    """Hosts that end the run when they are given the orders in which a round is trained."""

    def __init__(self, hosts: Hosts, round: int) -> None:
        self._hosts, self._round = hosts, round

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hosts, name)

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        if orders[0].number + 1 == self._round and not orders[0].extra:
            raise Stopped
        return self._hosts.exchange(orders, moves)


def variant(kind: type[Method], **hooks: Callable[..., Any]) -> type[Method]:
    """A method with other hooks under the same name."""
    named = {name: vars(kind)[name] for name in ("__module__", "__qualname__", "__doc__") if name in vars(kind)}
    made: type[Method] = type(kind.__name__, (kind,), {**named, **hooks})
    return made


def leaves(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested values."""
    if isinstance(tree, Tensor):
        yield tree
    elif is_dataclass(tree):
        yield from leaves(vars(tree))
    elif isinstance(tree, dict):
        yield from leaves(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)


def snapshot(tree: Any) -> Any:
    """A copy with tensors of its own."""
    if isinstance(tree, Tensor | Weights):
        return tree.clone()
    return {key: snapshot(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, Weights):
        return same(vars(a), vars(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)
