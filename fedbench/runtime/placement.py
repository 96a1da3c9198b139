"""Which host works for which client, and the hosts themselves: in this process, or Ray actors."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.methods.base import Message
from fedbench.runtime.host import Host, Order, Reply, Setup, Task, as_tensor
from fedbench.runtime.states import State

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


def balance(tasks: Sequence[Task], costs: dict[int, float], hosts: int) -> list[list[Task]]:
    """Deal tasks to hosts so that their summed costs are as equal as the longest-first rule makes them.

    Each host's tasks are ascending by client. Who works for a client changes no number.
    """
    loads, dealt = [0.0] * hosts, [[] for _ in range(hosts)]  # type: tuple[list[float], list[list[Task]]]
    for task in sorted(tasks, key=lambda task: (-costs.get(task.client, 1.0), task.client)):
        lightest = loads.index(min(loads))
        loads[lightest] += costs.get(task.client, 1.0)
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


@dataclass(frozen=True)
class Slot:
    """Where a tensor of a packed message is: in the arrays that follow the order."""

    index: int


class HostActor:
    """The Ray twin of a host: unpacks orders and packs replies."""

    def begin(self, setup: Setup) -> None:
        self._host = Host(setup)

    def work(
        self, order: Order, own: list[np.ndarray], shared_at: list[int], *shared: np.ndarray
    ) -> tuple[Reply, list[Any]]:
        arrays: dict[int, np.ndarray] = dict(zip(shared_at, shared, strict=True))
        arrays.update((-1 - i, array) for i, array in enumerate(own))
        tensors = {index: as_tensor(array) for index, array in arrays.items()}
        reply = self._host.work(_map(order, lambda slot: tensors[slot.index]))
        packed: list[np.ndarray] = []
        for report in reply.reports:
            for message in (report.upload, report.answer):
                if message is not None:
                    message.tensors = {n: _append(packed, t) for n, t in message.tensors.items()}  # type: ignore[misc]
        return reply, packed

    def put_states(self, states: dict[int, State], round: int) -> None:
        self._host.put_states(states, round)

    def get_states(self, committed: int) -> dict[int, State]:
        return self._host.get_states(committed)


def _append(packed: list[np.ndarray], tensor: Tensor) -> Slot:
    packed.append(tensor.contiguous().numpy())
    return Slot(len(packed) - 1)


def _map(order: Order, change: Any) -> Order:
    """The order with every tensor (or slot) of its messages changed; a message that tasks share stays shared."""
    seen: dict[int, Message] = {}

    def mapped(message: Message | None) -> Any:
        if message is None:
            return None
        if id(message) not in seen:
            tensors = {name: change(tensor) for name, tensor in message.tensors.items()}
            seen[id(message)] = Message(tensors, message.bits, message.charge)
        return seen[id(message)]

    tasks = [replace(task, download=mapped(task.download)) for task in order.tasks]
    return Order(order.round, tasks, mapped(order.global_model), mapped(order.question))


class RayHosts:
    """Hosts as Ray actors, each pinned to its bundle of a placement group.

    A host that dies is made anew, and its part of the round is done again from the last committed states.
    """

    share_states = True

    def __init__(self, count: int, cpus: float, gpus: float) -> None:
        import ray

        self._ray, self.count, self._cpus, self._gpus = ray, count, cpus, gpus
        self.restarts: list[str] = []
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
        device = "cuda" if self._gpus else "cpu"
        self._setup = self._ray.put(replace(setup, device=device))
        references = [self._begin(i) for i in range(self.count)]
        for i, reference in enumerate(references):
            self._answered(i, "at the start", partial(self._begin, i), reference)

    def _begin(self, index: int) -> Any:
        return self._actors[index].begin.remote(self._setup)

    def _unwrapped(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ConfigError) else error from None

    def run(self, orders: Sequence[Order]) -> list[Reply]:
        sends = self._packed(orders)
        references = [self._send(i, *send) for i, send in enumerate(sends)]
        return [self._received(i, reference, sends[i]) for i, reference in enumerate(references)]

    def _send(self, index: int, order: Order, own: list[np.ndarray], at: list[int], shared: list[Any]) -> Any:
        return self._actors[index].work.remote(order, own, at, *shared)

    def _received(self, index: int, reference: Any, send: Any) -> Reply:
        during = f"in round {send[0].round}"
        return _unpacked(*self._answered(index, during, partial(self._send, index, *send), reference))

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
                self._unwrapped(self._begin(index))
                return
            except self._ray.exceptions.RayActorError:
                if time.monotonic() > deadline:
                    raise

    def _packed(self, orders: Sequence[Order]) -> list[tuple[Order, list[np.ndarray], list[int], list[Any]]]:
        """Every distinct tensor once: through the object store where several hosts need it, else with its order."""
        owners: dict[int, set[int]] = {}
        kept: dict[int, Tensor] = {}

        def note(host: int, tensor: Tensor) -> Tensor:
            owners.setdefault(id(tensor), set()).add(host)
            kept[id(tensor)] = tensor
            return tensor

        for host, order in enumerate(orders):
            _map(order, lambda tensor, host=host: note(host, tensor))
        shared = {key: n for n, key in enumerate(k for k, hosts in owners.items() if len(hosts) > 1)}
        references = {key: self._ray.put(kept[key].contiguous().numpy()) for key in shared}
        return [self._pack(order, shared, references) for order in orders]

    def _pack(self, order: Order, shared: dict[int, int], references: dict[int, Any]) -> Any:
        own: list[np.ndarray] = []
        places: dict[int, Slot] = {}

        def place(tensor: Tensor) -> Slot:
            key = id(tensor)
            if key in shared:
                return Slot(shared[key])
            if key not in places:
                own.append(tensor.contiguous().numpy())
                places[key] = Slot(-len(own))
            return places[key]

        skeleton = _map(order, place)
        return skeleton, own, list(shared.values()), [references[key] for key in shared]

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


def _unpacked(reply: Reply, packed: list[np.ndarray]) -> Reply:
    tensors = [as_tensor(array) for array in packed]
    for report in reply.reports:
        for message in (report.upload, report.answer):
            if message is not None:
                slots: dict[str, Any] = dict(message.tensors)
                message.tensors = {n: tensors[slot.index] for n, slot in slots.items()}
    return reply


def check_resources(total: dict[str, float], bundle: dict[str, float], count: int) -> None:
    """Raise ConfigError where the whole cluster could never hold the hosts."""
    for kind, each in bundle.items():
        if total.get(kind, 0) < each * count - 1e-9:
            raise ConfigError(
                f"resources: {count} hosts of {each:g} {kind} need {each * count:g} {kind}, "
                f"there are {total.get(kind, 0):g}: lower --hosts or --{kind.lower()}s-per-host"
            )
