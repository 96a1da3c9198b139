"""A host in a Ray actor, on the driver's machine or on another one.

Slow imports are inside functions: the actor's process begins them while the driver does the same.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError
from fedbench.user_code import refuse_exits

if TYPE_CHECKING:
    import numpy as np

    from fedbench.data.dataset import Dataset
    from fedbench.runtime.exchange import Reply, Setup
    from fedbench.runtime.messages.channel import PackedOrder
    from fedbench.runtime.states.scratch import Scratch
    from fedbench.runtime.states.store import Versions


@dataclass(frozen=True)
class HostAddress:
    """A host's place. node: the driver's; folder: the driver's scratch folder, for hosts on that node.

    base: folder for the scratch folders of other nodes, if the user chose one. states: folder of the states of hosts on
    the driver's node; None: states are in memory, on all nodes.
    """

    index: int
    node: str
    folder: Path
    base: Path | None
    states: Path | None


@dataclass(frozen=True)
class HostStatus:
    """A host's node, the name of that machine, and whether the data set is missing there."""

    node: str
    machine: str
    lacks_data: bool = False


class HostActor:
    """A host as a Ray actor: unpacks orders and packs replies."""

    def __init__(self) -> None:
        import fedbench.runtime.messages.channel  # noqa: F401  # takes seconds, while the driver does the same

        self._scratch: Scratch | None = None

    def begin(self, setup: Setup, address: HostAddress, files: Mapping[str, Any] | None = None) -> HostStatus:
        """Prepare for a run. files: references to the data set's files, for a machine that lacks them.

        Raises ConfigError, which names the machine if it is not the driver's.
        """
        import ray
        import torch

        from fedbench.runtime.host import Host
        from fedbench.runtime.machine.process import prepare_process
        from fedbench.runtime.messages.channel import HostEnd
        from fedbench.runtime.resolved import ResolvedRun

        status = HostStatus(ray.get_runtime_context().get_node_id(), socket.gethostname())
        torch.set_num_threads(setup.config.train.threads)
        prepare_process()
        self.end()
        near = status.node == address.node
        try:
            dataset = _dataset(setup, files)
            if dataset is None:
                return replace(status, lacks_data=True)
            folder = address.states if near or address.states is None else self._make_folder(address, setup.state_bytes)
            local_setup = replace(setup, states=folder and folder / f"host-{address.index}")
            self._channel = HostEnd(address.folder / "messages")
            with refuse_exits():
                self._host = Host.of(local_setup, ResolvedRun.of(setup.config, dataset), ship=self._channel.ship)
        except ConfigError as error:
            raise error if near else ConfigError(f"machine {status.machine}: {error}") from None
        return status

    def _make_folder(self, address: HostAddress, bytes: int) -> Path:
        """A folder on this machine: that of the host that this one replaces, if it still exists."""
        from fedbench.runtime.states.scratch import Scratch

        self._scratch = Scratch(address.base, f"{address.folder.name}-{address.index}", bytes)
        return self._scratch.folder

    def work(self, packed: PackedOrder, *references: np.ndarray) -> tuple[Reply, list[np.ndarray]]:
        from fedbench.runtime.messages.transfer import on_cpu

        reply = self._host.work(self._channel.open(packed, references))
        on_cpu(reply.total.message)
        return self._channel.pack(reply)

    def give(self, versions: Versions) -> tuple[bool, dict[int, np.ndarray]]:
        return True, self._host.store.give(versions)

    def take(self, versions: Versions, contents: dict[int, np.ndarray]) -> None:
        self._host.store.take(versions, contents)

    def snapshot(self, versions: Versions, path: Path) -> None:
        self._host.store.snapshot(versions, path)

    def restore(self, versions: Versions, paths: Sequence[Path]) -> None:
        self._host.store.restore(versions, paths)

    def end(self) -> None:
        """Remove the files that are only on this machine."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None


def _dataset(setup: Setup, files: Mapping[str, Any] | None) -> Dataset | None:
    """The driver's data set, from this machine or as it was sent."""
    import ray

    assert setup.data is not None
    if files is None:
        return setup.data.find()
    return setup.data.copy_here(dict(zip(files, ray.get(list(files.values())), strict=True)))
