"""The driver as a Ray actor.

What takes long to import is imported in functions here: an actor's process starts hosts of its own before it has
PyTorch, so that all of them import it at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.data.dataset import Dataset
    from fedbench.runtime.drive import Assignment
    from fedbench.runtime.driver import Event


class DriverActor:
    """The driver in an actor of its own; what happens is fetched by whoever watches."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def run(self, assignments: Sequence[Assignment], group: Any) -> None:
        """group: where the hosts have their places."""
        from fedbench.user_code import exits_refused

        with exits_refused():
            with_hosts(assignments, self._events.append, group=group)

    def events(self) -> list[Event]:
        taken = self._events[:]
        del self._events[: len(taken)]  # the run may have added others meanwhile
        return taken


def with_hosts(
    assignments: Sequence[Assignment],
    on_event: Callable[[Event], None],
    dataset: Dataset | None = None,
    group: Any = None,
) -> None:
    """Runs that differ in their seeds, on hosts of their own. dataset: where it is loaded already."""
    from fedbench.runtime.ray_hosts import RayHosts

    config = assignments[0].config
    resources = config.resources
    hosts = RayHosts(int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host), group)
    try:
        from fedbench.data.dataset import Dataset
        from fedbench.runtime.drive import drive_all

        drive_all(assignments, hosts, dataset or Dataset.load(config.data), on_event)
    finally:
        hosts.close()
