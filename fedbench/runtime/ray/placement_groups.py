"""Reserves places for hosts on a cluster."""

import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.runtime import retries
from fedbench.runtime.ray.liveness import check_alive

CHECK_EVERY = 5
"""Seconds before a message about waiting, and between two checks of Ray."""


def reserve(
    count: int, cpus: float, gpus: float, strategy: str = "pack", say: Callable[[str], None] = lambda line: None
) -> Any:
    """A placement group with one bundle per host. Raises ConfigError if there is no room for it.

    strategy: `pack` or `spread`, as far as there is room. say: reports waiting.
    """
    import ray
    from ray.util import placement_group

    bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    check_resources(ray.cluster_resources(), bundle, count)
    group = placement_group([bundle] * count, strategy=strategy.upper())
    bundles, patience = f"{plural(count, 'host')} of {cpus:g} CPU and {gpus:g} GPU", retries.WAIT_FOR_PLACES
    deadline = time.monotonic() + patience
    waits = False
    while not group.wait(CHECK_EVERY):
        check_alive(ray)
        if not waits:
            say(f"{bundles} wait for a place on the cluster, {patience:g} s at most")
        waits = True
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{bundles} found no place on the cluster within {patience:g} s: free some resources, or lower --hosts"
            )
    return group


def check_resources(total: dict[str, float], bundle: dict[str, float], count: int) -> None:
    """Raises ConfigError if the whole cluster is too small for the hosts."""
    for kind, each in bundle.items():
        if total.get(kind, 0) < each * count - 1e-9:
            raise ConfigError(
                f"resources: {plural(count, 'host')} of {each:g} {kind} {'needs' if count == 1 else 'need'} "
                f"{each * count:g} {kind}, there are {total.get(kind, 0):g}: lower --hosts or "
                f"--{kind.lower()}s-per-host"
            )


def room_on_gpus(machines: Sequence[dict[str, float]], cpus: float, per_gpu: int) -> int:
    """How many hosts with `cpus` cores each fit on the machines, with at most `per_gpu` on each GPU."""
    return sum(min(per_gpu * int(m.get("GPU", 0)), int(m.get("CPU", 0) / cpus)) for m in machines)


def share_of_gpu(machines: Sequence[dict[str, float]], cpus: float, hosts: int) -> float:
    """The largest 1/k of a GPU with which all hosts have a place; 0 if there is no GPU.

    A share that does not divide a GPU evenly, such as 3/4, would leave a quarter of each unused.
    """
    gpus = sum(int(machine.get("GPU", 0)) for machine in machines)
    if not gpus:
        return 0.0
    fitting = (k for k in range(1, hosts + 1) if room_on_gpus(machines, cpus, k) >= hosts)
    return 1 / next(fitting, ceil(hosts / gpus))
