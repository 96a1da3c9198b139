"""Hosts in processes of their own, started once: a host takes a new setup as often as one likes."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fedbench.runtime.ray.hosts import RayHosts

MOST = 4


@pytest.fixture(scope="session")
def ray_hosts(local_ray: Any) -> Iterator[Callable[[int], RayHosts]]:
    """1, 2 or 4 hosts; fewer of them are the first ones of the four, because starting one takes seconds."""
    started = RayHosts(MOST, cpus=1, gpus=0)

    def first(count: int) -> RayHosts:
        hosts = copy.copy(started)
        hosts.count, hosts._actors = count, started._actors[:count]
        return hosts

    yield first
    started.close()
