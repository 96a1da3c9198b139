"""Hosts and the driver as Ray actors.

What takes long to import is imported in functions here: an actor's process starts hosts of its own before it has
PyTorch, so that all of them import it at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from fedbench.data.dataset import Dataset
    from fedbench.runtime.channel import PackedOrder
    from fedbench.runtime.drive import Assignment
    from fedbench.runtime.driver import Event
    from fedbench.runtime.exchange import Order, Relocation, Reply, Setup
    from fedbench.runtime.store import Versions

START_TIMEOUT = 600.0
RESTARTS = 5


class DriverActor:
    """The driver in an actor of its own; what happens is fetched by whoever watches."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def run(self, assignments: Sequence[Assignment]) -> None:
        with_hosts(assignments, self._events.append)

    def events(self) -> list[Event]:
        taken, self._events[:] = list(self._events), []
        return taken


def with_hosts(
    assignments: Sequence[Assignment], on_event: Callable[[Event], None], dataset: Dataset | None = None
) -> None:
    """Runs that differ in their seeds, on hosts of their own. dataset: where it is loaded already."""
    config = assignments[0].config
    resources = config.resources
    hosts = RayHosts(int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host))
    try:
        from fedbench.data.dataset import Dataset
        from fedbench.runtime.drive import drive_all

        drive_all(assignments, hosts, dataset or Dataset.load(config.data), on_event)
    finally:
        hosts.close()


class HostActor:
    """The Ray twin of a host: opens orders and packs replies."""

    def __init__(self) -> None:
        import fedbench.runtime.channel  # noqa: F401  # takes seconds, in which the driver does the same

    def begin(self, setup: Setup, states: Path | None, messages: Path) -> str:
        """Returns the node that this host is on."""
        import ray
        import torch

        from fedbench.runtime.allocator import keep_freed_memory
        from fedbench.runtime.channel import HostEnd
        from fedbench.runtime.host import Host

        torch.set_num_threads(setup.config.train.threads)
        keep_freed_memory()
        self._channel = HostEnd(messages)
        self._host = Host.of(replace(setup, states=states), ship=self._channel.ship)
        return ray.get_runtime_context().get_node_id()

    def work(self, packed: PackedOrder, *references: np.ndarray) -> tuple[Reply, list[np.ndarray]]:
        return self._channel.packed(self._host.work(self._channel.opened(packed, references)))

    def give(self, versions: Versions) -> tuple[bool, dict[int, np.ndarray]]:
        return True, self._host.store.give(versions)

    def take(self, versions: Versions, contents: dict[int, np.ndarray]) -> None:
        self._host.store.take(versions, contents)

    def snapshot(self, versions: Versions, path: Path) -> None:
        self._host.store.snapshot(versions, path)

    def restore(self, versions: Versions, paths: Sequence[Path]) -> None:
        for path in paths:
            self._host.store.restore(versions, path)


class RayHosts:
    """Hosts as Ray actors, each pinned to its bundle of a placement group.

    A host that dies is made anew and goes on with the states of the one before it, whose part of the exchange is done
    again.
    """

    def __init__(self, count: int, cpus: float, gpus: float) -> None:
        import ray

        self._ray, self.count, self._cpus, self._gpus = ray, count, cpus, gpus
        self.restarts: list[str] = []
        self._node = ray.get_runtime_context().get_node_id()
        self._near = [True] * count
        self._scratch: Any = None
        self._group, self._offset, self._own = self._placement()
        self._actors: list[Any] = [self._create(i) for i in range(count)]

    def _placement(self) -> tuple[Any, int, bool]:
        """The group that this process is in, whose last bundles are for the hosts, or a new one."""
        from ray.util import get_current_placement_group

        group = get_current_placement_group()
        if group is not None and len(group.bundle_specs) >= self.count:
            return group, len(group.bundle_specs) - self.count, False
        return reserve(self.count, self._cpus, self._gpus), 0, True

    def _create(self, index: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._offset + index)
        actor = self._ray.remote(HostActor).options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy
        )
        return actor.remote()

    def begin(self, setup: Setup) -> None:
        from fedbench.runtime.channel import DriverEnd
        from fedbench.runtime.scratch import Scratch

        self.end()
        resources = setup.config.resources
        self._scratch, self._in_memory = Scratch(resources.scratch), resources.states == "memory"
        self._setup = self._ray.put(replace(setup, device="cuda" if self._gpus else "cpu"))
        self._channel = DriverEnd(self._scratch.folder / "messages", self._ray.put)
        references = [self._begin(i) for i in range(self.count)]
        nodes = [self._answered(i, "at the start", partial(self._begin, i), ref) for i, ref in enumerate(references)]
        self._near = [node == self._node for node in nodes]
        if not all(self._near):
            raise ConfigError(
                f"resources.hosts = {self.count}: they have places on several nodes of the cluster, and private states "
                "are kept on one so far; take at most as many as one node has room for"
            )

    def _begin(self, index: int) -> Any:
        folder = self._scratch.folder
        states = None if self._in_memory else folder / f"host-{index}"
        return self._actors[index].begin.remote(self._setup, states, folder / "messages")

    def _unwrapped(self, reference: Any) -> Any:
        from fedbench.runtime.store import StateLostError

        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ConfigError | StateLostError) else error from None

    # -- exchanges ----------------------------------------------------------------------------------------------------

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        self._channel.begin_exchange()
        self._packed: dict[int, PackedOrder] = {}
        self._arrivals: dict[int, list[tuple[Versions, Any]]] = {}
        self._move(moves)
        references = [self._send(i, order) for i, order in enumerate(orders)]
        return [self._received(i, reference, orders[i]) for i, reference in enumerate(references)]

    def _move(self, moves: Sequence[Relocation]) -> None:
        """Have states travel from store to store; their content does not pass through this process."""
        ways = sorted({(move.source, move.target) for move in moves})
        leaving = [{m.client: m.kept for m in moves if (m.source, m.target) == way} for way in ways]
        given: list[Any] = []

        def give(source: int, versions: Versions) -> Any:
            sent, contents = self._actors[source].give.options(num_returns=2).remote(versions)
            given.append(contents)
            return sent

        for (source, target), versions in zip(ways, leaving, strict=True):
            ask = partial(give, source, versions)
            self._answered(source, "while clients moved", ask, ask())
            self._arrivals.setdefault(target, []).append((versions, given[-1]))

    def _send(self, index: int, order: Order) -> Any:
        if index in self._packed:  # its host is dead
            self._channel.lost(self._packed[index])
        for versions, contents in self._arrivals.get(index, ()):
            self._actors[index].take.remote(versions, contents)
        self._packed[index], references = self._channel.packed(order, self._near[index])
        return self._actors[index].work.remote(self._packed[index], *references)

    def _received(self, index: int, reference: Any, order: Order) -> Reply:
        during = f"in exchange {order.number}"
        answer = self._answered(index, during, partial(self._send, index, order), reference)
        return self._channel.opened(self._packed[index], *answer)

    def _answered(self, index: int, during: str, ask: Callable[[], Any], reference: Any) -> Any:
        """What a host answers; one that dies before it does is made anew and asked again."""
        for _ in range(RESTARTS):
            try:
                return self._unwrapped(reference)
            except self._ray.exceptions.RayActorError as error:
                error.__traceback__ = None  # Ray keeps the error, whose frames would keep the exchange's tensors
                self.restarts.append(f"host {index} died {during} and was made anew")
                self._remake(index)
                reference = ask()
        raise RuntimeError(f"host {index} died {RESTARTS} times {during}: is its memory exhausted?")

    def _remake(self, index: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        self._ray.kill(self._actors[index])  # it may be out of reach only, and still write
        while True:
            self._actors[index] = self._create(index)
            try:
                self._near[index] = self._unwrapped(self._begin(index)) == self._node
                return
            except self._ray.exceptions.RayActorError:
                if time.monotonic() > deadline:
                    raise

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def snapshot(self, versions: Sequence[Versions], folder: Path) -> None:
        from fedbench.runtime.hosts import shard

        self._all("while states were kept", lambda i: ("snapshot", versions[i], shard(folder.absolute(), i)))

    def restore(self, versions: Sequence[Versions], folder: Path) -> None:
        from fedbench.runtime.hosts import shards

        self._all("while states were restored", lambda i: ("restore", versions[i], shards(folder.absolute())))

    def _all(self, during: str, asked: Callable[[int], tuple[Any, ...]]) -> None:
        def ask(index: int) -> Any:
            name, *arguments = asked(index)
            return getattr(self._actors[index], name).remote(*arguments)

        for index, reference in enumerate([ask(i) for i in range(self.count)]):
            self._answered(index, during, partial(ask, index), reference)

    def end(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self.end()
        if self._own:
            from ray.util import remove_placement_group

            remove_placement_group(self._group)


def reserve(count: int, cpus: float, gpus: float) -> Any:
    """A placement group with one bundle per host. Raises ConfigError where there is no place for it."""
    import ray
    from ray.util import placement_group

    bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    check_resources(ray.cluster_resources(), bundle, count)
    group = placement_group([bundle] * count, strategy="PACK")
    if not group.wait(START_TIMEOUT):
        raise ConfigError(
            f"{count} hosts of {cpus:g} CPU and {gpus:g} GPU each found no place on the cluster within "
            f"{START_TIMEOUT:g} s: free some of it, or lower --hosts"
        )
    return group


def check_resources(total: dict[str, float], bundle: dict[str, float], count: int) -> None:
    """Raise ConfigError where the whole cluster could never hold the hosts."""
    for kind, each in bundle.items():
        if total.get(kind, 0) < each * count - 1e-9:
            raise ConfigError(
                f"resources: {count} hosts of {each:g} {kind} need {each * count:g} {kind}, "
                f"there are {total.get(kind, 0):g}: lower --hosts or --{kind.lower()}s-per-host"
            )
