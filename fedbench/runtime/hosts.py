"""The driver's interface to its hosts, and one host in the calling process; Ray's hosts are in ray/hosts.py."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fedbench.runtime.build import RunParts
from fedbench.runtime.exchange import Order, Relocation, Reply, Setup
from fedbench.runtime.host import Host
from fedbench.runtime.states.scratch import LARGE, Scratch
from fedbench.runtime.states.store import Versions


class Hosts(Protocol):
    """Hosts; device: cpu or cuda, known once they have begun; `remarks`: where they are, and which died."""

    count: int
    device: str
    remarks: list[str]

    def begin(self, setup: Setup, parts: RunParts) -> None:
        """Prepare for a run. parts: the driver's, which a host in its process may share."""

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        """Move private states, send every host its order, and return all replies."""

    def empty_like(self, tensor: Tensor) -> Tensor:
        """A tensor of this shape and type which hosts read where it is, if they can."""

    def snapshot(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        """Have every host with states write them to its shard of a checkpoint."""

    def restore(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        """Have every host load the states of its clients from the shards of a checkpoint."""

    def end(self) -> None:
        """Forget the run."""

    def close(self) -> None: ...


class InProcess:
    """One host in the calling process, without Ray: for debuggers and small runs.

    debug: raise client failures where they happen. gpu_share: of the memory of a GPU, the part that it may take.
    """

    count = 1

    def __init__(self, debug: bool = False, gpu_share: float = 1.0) -> None:
        self._debug, self._gpu_share, self.device, self.remarks = debug, gpu_share, "cpu", list[str]()
        self._scratch: Scratch | None = None

    def begin(self, setup: Setup, parts: RunParts) -> None:
        self.end()
        resources = setup.config.resources
        if resources.states == "disk" or (resources.states == "auto" and setup.state_bytes > LARGE):
            self._scratch = Scratch(resources.scratch, bytes=setup.state_bytes)
            setup = replace(setup, states=self._scratch.folder / "host-0")
        self.device = "cuda" if torch.cuda.is_available() and resources.gpus_per_host else "cpu"
        here = replace(setup, device=self.device, gpu_share=self._gpu_share)
        self._host = Host.of(here, parts.run, parts if self.device == "cpu" else None, debug=self._debug)

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        return [self._host.work(order) for order in orders]

    def empty_like(self, tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor)

    def snapshot(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        if versions[0]:
            self._host.store.snapshot(versions[0], paths[0])

    def restore(self, versions: Sequence[Versions], paths: Sequence[Path]) -> None:
        self._host.store.restore(versions[0], paths)

    def end(self) -> None:
        if self._scratch:
            self._scratch.close()
            self._scratch = None

    def close(self) -> None:
        self.end()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sets PyTorch's thread count for a block and restores it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
