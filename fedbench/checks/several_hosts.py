"""Several hosts in this process: orders, replies and states travel as between hosts of Ray, but nothing starts."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedbench.runtime.build import RunParts
from fedbench.runtime.exchange import Order, Relocation, Reply, Setup
from fedbench.runtime.host import Host
from fedbench.runtime.messages.channel import DriverEnd, HostEnd
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.states.scratch import Scratch
from fedbench.runtime.states.store import Versions


class SeveralHosts:
    """Every second host is treated as one on another machine, which does not see the arena."""

    device = "cpu"

    def __init__(self, count: int) -> None:
        self.count, self.remarks = count, list[str]()
        self._scratch: Scratch | None = None

    def begin(self, setup: Setup, parts: RunParts) -> None:
        self.end()
        self._scratch = Scratch(None)
        folder = self._scratch.folder
        self._channel = DriverEnd(folder / "messages", lambda array: array)
        self._ends = [HostEnd(folder / "messages") for _ in range(self.count)]
        self._hosts = []
        for number, end in enumerate(self._ends):
            states = folder / f"host-{number}" if setup.config.resources.states != "memory" else None
            own = travelled(replace(setup, data=None, states=states))
            self._hosts.append(Host.of(own, ResolvedRun.of(own.config, parts.run.dataset), ship=end.ship))

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        self._channel.begin_exchange()
        for move in moves:
            versions = {move.client: move.kept}
            self._hosts[move.target].store.take(versions, self._hosts[move.source].store.give(versions))
        packed = [self._channel.pack(order, number % 2 == 0) for number, order in enumerate(orders)]
        answers = []
        for host, end, (order, references) in zip(self._hosts, self._ends, packed, strict=True):
            reply = host.work(end.open(travelled(order), [travelled(array) for array in references]))
            answers.append(travelled(end.pack(reply)))
        return [self._channel.open(order, *answer) for (order, _), answer in zip(packed, answers, strict=True)]

    def empty_like(self, tensor: Tensor) -> Tensor:
        return self._channel.empty_like(tensor)

    def snapshot(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        for host, own, path in zip(self._hosts, versions, paths, strict=True):
            if own:
                host.store.snapshot(own, path)

    def restore(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        for host, own in zip(self._hosts, versions, strict=True):
            host.store.restore(own, paths)

    def end(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def close(self) -> None:
        self.end()


def travelled(value: Any) -> Any:
    """A copy as another process would have it."""
    return pickle.loads(pickle.dumps(value))
