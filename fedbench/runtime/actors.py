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

from fedbench.config import Config
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from fedbench.data.dataset import Dataset
    from fedbench.runtime.driver import Event
    from fedbench.runtime.host import Order, Reply, Report, Setup
    from fedbench.runtime.states import State
    from fedbench.runtime.transport import Packet

START_TIMEOUT = 600.0
RESTARTS = 5


class DriverActor:
    """The driver in an actor of its own; what happens is fetched by whoever watches."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def run(self, config: Config, folder: Path, resume: bool) -> list[str]:
        return with_hosts(config, folder, self._events.append, resume)

    def events(self) -> list[Event]:
        taken, self._events[:] = list(self._events), []
        return taken


def with_hosts(
    config: Config, folder: Path, on_event: Callable[[Event], None], resume: bool, dataset: Dataset | None = None
) -> list[str]:
    """The rounds on hosts of their own; returns the warnings. dataset: where it is loaded already."""
    resources = config.resources
    hosts = RayHosts(int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host))
    try:
        from fedbench.data.dataset import Dataset
        from fedbench.runtime.driver import Driver

        return Driver(config, folder, hosts, dataset or Dataset.load(config.data), on_event).run(resume)
    finally:
        hosts.close()


class HostActor:
    """The Ray twin of a host: unpacks orders and packs replies."""

    def __init__(self) -> None:
        import fedbench.runtime.transport  # noqa: F401  # takes seconds, in which the driver does the same

    def begin(self, setup: Setup) -> str:
        """Returns the node that this host is on."""
        import ray

        from fedbench.runtime.host import Host
        from fedbench.runtime.states import messages_folder
        from fedbench.runtime.transport import Mailbox

        assert setup.shared is not None
        self._mailbox = Mailbox(messages_folder(setup.shared))
        self._host = Host(setup, ship=self._mailbox.ship)
        return ray.get_runtime_context().get_node_id()

    def work(self, packet: Packet, *references: np.ndarray) -> tuple[Reply, list[np.ndarray]]:
        return self._mailbox.packed(self._host.work(self._mailbox.opened(packet, references)))

    def put_states(self, states: dict[int, State], round: int) -> None:
        self._host.put_states(states, round)

    def get_states(self, committed: int) -> dict[int, State]:
        return self._host.get_states(committed)


class RayHosts:
    """Hosts as Ray actors, each pinned to its bundle of a placement group.

    A host that dies is made anew, and its part of the round is done again from the last committed states.
    """

    share_states = True

    def __init__(self, count: int, cpus: float, gpus: float) -> None:
        import ray

        self._ray, self.count, self._cpus, self._gpus = ray, count, cpus, gpus
        self.restarts: list[str] = []
        self._node = ray.get_runtime_context().get_node_id()
        self._near = [True] * count
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
        from fedbench.runtime.states import messages_folder
        from fedbench.runtime.transport import Post

        assert setup.shared is not None
        self._setup = self._ray.put(replace(setup, device="cuda" if self._gpus else "cpu"))
        self._post = Post(messages_folder(setup.shared), self._ray.put)
        references = [self._begin(i) for i in range(self.count)]
        nodes = [self._answered(i, "at the start", partial(self._begin, i), ref) for i, ref in enumerate(references)]
        self._near = [node == self._node for node in nodes]

    def _begin(self, index: int) -> Any:
        return self._actors[index].begin.remote(self._setup)

    def _unwrapped(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ConfigError) else error from None

    def run(self, orders: Sequence[Order]) -> list[Reply]:
        self._post.begin_round()
        self._packets: dict[int, Packet] = {}
        self._rescued: dict[int, list[Report]] = {}
        references = [self._send(i, order) for i, order in enumerate(orders)]
        return [self._received(i, reference, orders[i]) for i, reference in enumerate(references)]

    def _send(self, index: int, order: Order) -> Any:
        rescued = self._rescued.setdefault(index, [])
        if index in self._packets:  # its host is dead
            rescued += self._post.rescued(self._packets[index])
        done = {report.client for report in rescued}
        left = replace(order, tasks=[task for task in order.tasks if task.client not in done])
        self._packets[index], references = self._post.packet(left, self._near[index])
        return self._actors[index].work.remote(self._packets[index], *references)

    def _received(self, index: int, reference: Any, order: Order) -> Reply:
        answer = self._answered(index, f"in round {order.round}", partial(self._send, index, order), reference)
        reply = self._post.unpacked(self._packets[index], *answer)
        reply.reports += self._rescued[index]
        return reply

    def _answered(self, index: int, during: str, ask: Callable[[], Any], reference: Any) -> Any:
        """What a host answers; one that dies before it does is made anew and asked again."""
        for _ in range(RESTARTS):
            try:
                return self._unwrapped(reference)
            except self._ray.exceptions.RayActorError as error:
                error.__traceback__ = None  # Ray keeps the error, whose frames would keep the round's tensors
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

    # The states are in shared memory, where any host can reach them.

    def put_states(self, states: dict[int, State], round: int) -> None:
        ask = lambda: self._actors[0].put_states.remote(states, round)  # noqa: E731
        self._answered(0, "while states were restored", ask, ask())

    def get_states(self, committed: int) -> dict[int, State]:
        ask = lambda: self._actors[0].get_states.remote(committed)  # noqa: E731
        return self._answered(0, f"after round {committed}", ask, ask())

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
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
