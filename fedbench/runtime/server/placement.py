"""Assigns clients to hosts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedbench.methods.messages import Message
from fedbench.runtime.exchange import POOLED, ClientTask, Relocation, Report

MOVE_SECONDS, MOVED_PER_SECOND = 0.003, 3e8
"""The cost of moving a client with its private state: seconds for the messages, and bytes per second."""


class Seconds:
    """Seconds of one kind of work by client, their sum, and the sum of these clients' images."""

    def __init__(self) -> None:
        self.of: dict[int, float] = {}
        self.sum = self.images = 0.0

    def learn(self, client: int, seconds: float, images: int) -> None:
        """Record a time. The least counts, since any excess is due to the machine's other work."""
        before = self.of.get(client)
        self.of[client] = seconds if before is None else min(seconds, before)
        self.sum += self.of[client] - (before or 0.0)
        self.images += images if before is None else 0


class ClientCosts:
    """Seconds that clients' work takes, as measured, or in proportion to images if not measured yet.

    images: training images per client, used instead of seconds until anything is measured.
    """

    def __init__(self, images: Sequence[int]) -> None:
        self._images, self._all = images, sum(images) + images.count(0)
        self._train, self._eval = Seconds(), Seconds()

    def learn(self, report: Report) -> None:
        for known, seconds in ((self._train, report.train_seconds), (self._eval, report.eval_seconds)):
            if seconds:
                known.learn(report.client, seconds, self._images_of(report.client))

    @property
    def in_seconds(self) -> bool:
        """Whether costs are in seconds yet."""
        return bool(self._train.of or self._eval.of)

    def of(self, task: ClientTask) -> float:
        evaluates = task.after_agg or task.global_model or task.after_fit
        return task.train * self._of(task.client, self._train) + evaluates * self._of(task.client, self._eval)

    def _of(self, client: int, known: Seconds) -> float:
        images = self._images_of(client)
        if client in known.of:
            return known.of[client]
        if not known.of:  # images next to seconds would outweigh them
            return 0.0 if self.in_seconds else float(images)
        return images * known.sum / known.images

    def _images_of(self, client: int) -> int:
        return self._all if client == POOLED else max(1, self._images[client])


@dataclass
class Home:
    """The host of a client's private state, its round, and its bytes."""

    host: int
    kept: int
    nbytes: int = 0


@dataclass
class Homes:
    """The homes of clients: a client with a private state is at home on its host, and moves only together with it.

    moved_away: by host, the clients that have left it since its last order.
    """

    hosts: int
    of: dict[int, Home] = field(default_factory=dict)
    moved_away: dict[int, list[int]] = field(default_factory=dict)

    def round_saved(self, client: int) -> int:
        """The round in which the client's state was saved; 0 before the first."""
        return self.of[client].kept if client in self.of else 0

    def learn(self, round: int, host: int, reports: Sequence[Report]) -> None:
        """Record which states a host saved in a round."""
        for report in reports:
            if report.kept is not None:
                self.of[report.client] = Home(host, round, report.kept)

    def settle(self, kept: Mapping[int, tuple[int, int]], costs: ClientCosts) -> None:
        """Assign homes to clients with states in a checkpoint. kept: round and bytes of each client's state."""
        tasks = [ClientTask(client, Message(), train=True) for client in kept]
        dealt, _ = self.deal(tasks, costs.of, movable=False)
        for host, host_tasks in enumerate(dealt):
            self.of.update({task.client: Home(host, *kept[task.client]) for task in host_tasks})

    def versions(self, host: int) -> dict[int, int]:
        """The clients at home on a host, with the rounds of their states."""
        return {client: home.kept for client, home in sorted(self.of.items()) if home.host == host}

    def take_moved(self, host: int) -> list[int]:
        """The clients that have left a host since the last call."""
        return self.moved_away.pop(host, [])

    def deal(
        self, tasks: Sequence[ClientTask], costs: Callable[[ClientTask], float], movable: bool
    ) -> tuple[list[list[ClientTask]], list[Relocation]]:
        """Deal tasks to hosts so that their summed costs are as equal as the longest-first rule makes them.

        A client that has a home is moved only if the time gained exceeds that of the transfer. Each host's tasks are
        ascending by client. The assignment does not affect results.
        """
        cost = {task.client: costs(task) for task in tasks}
        loads, dealt = [0.0] * self.hosts, [[] for _ in range(self.hosts)]  # type: tuple[list[float], list[list[ClientTask]]]

        def give(task: ClientTask, host: int) -> None:
            loads[host] += cost[task.client]
            dealt[host].append(task)

        settled = [task for task in tasks if task.client in self.of]
        for task in settled:
            give(task, self.of[task.client].host)
        for task in sorted(tasks, key=lambda task: (-cost[task.client], task.client)):
            if task.client not in self.of:
                give(task, min(range(self.hosts), key=lambda host: (loads[host], len(dealt[host]))))
        moves = self._even_out(loads, dealt, cost) if movable and settled else []
        return [sorted(host_tasks, key=lambda task: task.client) for host_tasks in dealt], moves

    def _even_out(self, loads: list[float], dealt: list[list[ClientTask]], cost: dict[int, float]) -> list[Relocation]:
        """Move clients from the host with most work to the one with least, while that saves time."""
        moves: list[Relocation] = []
        moved: set[int] = set()
        while True:
            most, least = max(range(self.hosts), key=loads.__getitem__), min(range(self.hosts), key=loads.__getitem__)
            gap = loads[most] - loads[least]

            def gain(task: ClientTask, gap: float = gap) -> float:
                seconds = cost[task.client]
                return min(seconds, gap - seconds) - self._price(task.client)

            stay = [task for task in dealt[most] if task.client in self.of and task.client not in moved]
            best = max(stay, key=lambda task: (gain(task), -task.client), default=None)
            if best is None or gain(best) <= 0:
                return moves
            client, price = best.client, self._price(best.client)
            moves.append(Relocation(client, self.of[client].kept, most, least))
            moved.add(client)
            self.of[client].host = least
            self.moved_away.setdefault(most, []).append(client)
            dealt[most].remove(best)
            dealt[least].append(best)
            loads[most] -= cost[client]
            loads[least] += cost[client] + price

    def _price(self, client: int) -> float:
        return MOVE_SECONDS + self.of[client].nbytes / MOVED_PER_SECOND
