"""The driver as a Ray actor, and places for its hosts.

What takes long to import is imported in functions here: an actor's process starts hosts of its own before it has
PyTorch, so that all of them import it at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.data.dataset import Dataset
    from fedbench.runtime.drive import Assignment
    from fedbench.runtime.driver import Event

START_TIMEOUT = 600.0


class DriverActor:
    """The driver in an actor of its own; what happens is fetched by whoever watches."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def run(self, assignments: Sequence[Assignment], group: Any) -> None:
        """group: where the hosts have their places."""
        with_hosts(assignments, self._events.append, group=group)

    def events(self) -> list[Event]:
        taken, self._events[:] = list(self._events), []
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


def reserve(count: int, cpus: float, gpus: float, strategy: str = "pack") -> Any:
    """A placement group with one bundle per host. Raises ConfigError where there is no place for it.

    strategy: `pack` or `spread`, as far as there is room.
    """
    import ray
    from ray.util import placement_group

    bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    check_resources(ray.cluster_resources(), bundle, count)
    group = placement_group([bundle] * count, strategy=strategy.upper())
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
