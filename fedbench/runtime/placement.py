"""Which host works for which client, and a host in the calling process; those of Ray are in actors.py."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from fedbench.runtime.host import Host, Order, Reply, Report, Setup, Task
from fedbench.runtime.states import State


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
