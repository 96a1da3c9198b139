"""The driver as a Ray actor.

What takes long to import is imported in functions here: an actor's process starts hosts of its own before it has
PyTorch, so that all of them import it at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.runtime.drive import SeedTask
    from fedbench.runtime.driver import Event
    from fedbench.runtime.resolved import ResolvedRun


class DriverActor:
    """The driver in an actor of its own; what happens is fetched by whoever watches."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def run(self, tasks: Sequence[SeedTask], group: Any) -> None:
        """group: where the hosts have their places."""
        from fedbench.user_code import exits_refused

        with exits_refused():
            with_hosts(tasks, self._events.append, group=group)

    def events(self) -> list[Event]:
        taken = self._events[:]
        del self._events[: len(taken)]  # the run may have added others meanwhile
        return taken


def with_hosts(
    tasks: Sequence[SeedTask],
    on_event: Callable[[Event], None],
    run: ResolvedRun | None = None,
    group: Any = None,
) -> None:
    """The seeds of a run, on hosts of their own. run: where it is resolved in this process already."""
    from fedbench.runtime.ray.hosts import RayHosts

    config = tasks[0].config
    resources = config.resources
    hosts = RayHosts(int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host), group)
    try:
        from fedbench.runtime.drive import drive_all
        from fedbench.runtime.resolved import ResolvedRun

        drive_all(run or ResolvedRun.of(config), tasks, hosts, on_event)
    finally:
        hosts.close()
