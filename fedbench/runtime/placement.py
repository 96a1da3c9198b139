"""Which host works for which client, and the hosts themselves: in this process, or Ray actors."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from fedbench.errors import ConfigError
from fedbench.runtime.host import Host, Order, Reply, Report, Setup, Task
from fedbench.runtime.states import State, messages_folder
from fedbench.runtime.transport import Mailbox, Packet, Post

START_TIMEOUT = 600.0
RESTARTS = 5


class Hosts(Protocol):
    """Some hosts. `run` sends every host one order and returns their replies; `restarts` tells of dead hosts.

    share_states: whether private states must be where every host of a node can reach them.
    """

    count: int
    share_states: bool
    restarts: list[str]

    def begin(self, setup: Setup) -> None: ...

    def run(self, orders: Sequence[Order]) -> list[Reply]: ...

    def put_states(self, states: dict[int, State], round: int) -> None: ...

    def get_states(self, committed: int) -> dict[int, State]: ...

    def close(self) -> None: ...


class Costs:
    """Seconds that clients' work takes: as measured, or in proportion to images where it was not yet.

    images: training images per client, which stand for seconds until anything is measured.
    """

    def __init__(self, images: Sequence[int]) -> None:
        self._images = {client: max(1, count) for client, count in enumerate(images)}
        self._fit: dict[int, float] = {}
        self._eval: dict[int, float] = {}

    def learn(self, report: Report) -> None:
        """The least time counts: what is above it was the machine's other work."""
        for known, seconds in ((self._fit, report.fit_seconds), (self._eval, report.eval_seconds)):
            if seconds:
                known[report.client] = min(seconds, known.get(report.client, seconds))

    def of(self, task: Task) -> float:
        evaluates = task.evaluate_agg or task.evaluate_global or task.evaluate_fit
        return task.fit * self._of(task.client, self._fit) + evaluates * self._of(task.client, self._eval)

    def _of(self, client: int, known: dict[int, float]) -> float:
        images = self._images.get(client, sum(self._images.values()))
        if client in known:
            return known[client]
        if not known:  # images next to seconds would outweigh them
            return 0.0 if self._fit or self._eval else float(images)
        return images * sum(known.values()) / sum(self._images.get(c, images) for c in known)


def balance(tasks: Sequence[Task], cost: Callable[[Task], float], hosts: int) -> list[list[Task]]:
    """Deal tasks to hosts so that their summed costs are as equal as the longest-first rule makes them.

    Each host's tasks are ascending by client. Who works for a client changes no number.
    """
    loads, dealt = [0.0] * hosts, [[] for _ in range(hosts)]  # type: tuple[list[float], list[list[Task]]]
    costs = {task.client: cost(task) for task in tasks}
    for task in sorted(tasks, key=lambda task: (-costs[task.client], task.client)):
        lightest = min(range(hosts), key=lambda host: (loads[host], len(dealt[host])))
        loads[lightest] += costs[task.client]
        dealt[lightest].append(task)
    return [sorted(own, key=lambda task: task.client) for own in dealt]


class InProcess:
    """One host in the calling process, without Ray: for debuggers and small runs."""

    count, share_states = 1, False

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.restarts = dataset, []  # type: tuple[Any, list[str]]

    def begin(self, setup: Setup) -> None:
        on_gpu = torch.cuda.is_available() and setup.config.resources.gpus_per_host
        self._host = Host(replace(setup, device="cuda" if on_gpu else "cpu"), self._dataset)

    def run(self, orders: Sequence[Order]) -> list[Reply]:
        return [self._host.work(order) for order in orders]

    def put_states(self, states: dict[int, State], round: int) -> None:
        self._host.put_states(states, round)

    def get_states(self, committed: int) -> dict[int, State]:
        return self._host.get_states(committed)

    def close(self) -> None:
        pass


class HostActor:
    """The Ray twin of a host: unpacks orders and packs replies."""

    def begin(self, setup: Setup) -> str:
        """Returns the node that this host is on."""
        import ray

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
        references = [self._send(i, order) for i, order in enumerate(orders)]
        return [self._received(i, reference, orders[i]) for i, reference in enumerate(references)]

    def _send(self, index: int, order: Order) -> Any:
        if index in self._packets:  # its host is dead
            self._post.discard(self._packets[index])
        self._packets[index], references = self._post.packet(order, self._near[index])
        return self._actors[index].work.remote(self._packets[index], *references)

    def _received(self, index: int, reference: Any, order: Order) -> Reply:
        answer = self._answered(index, f"in round {order.round}", partial(self._send, index, order), reference)
        return self._post.unpacked(self._packets[index], *answer)

    def _answered(self, index: int, during: str, ask: Callable[[], Any], reference: Any) -> Any:
        """What a host answers; one that dies before it does is made anew and asked again."""
        for _ in range(RESTARTS):
            try:
                return self._unwrapped(reference)
            except self._ray.exceptions.RayActorError:
                self.restarts.append(f"host {index} died {during} and was made anew")
                self._remake(index)
                reference = ask()
        raise RuntimeError(f"host {index} died {RESTARTS} times {during}: is its memory exhausted?")

    def _remake(self, index: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT
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
