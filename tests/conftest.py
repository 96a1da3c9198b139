"""Tests run with a cache of their own, one thread, and one Ray in one process for all that need one."""

import copy
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from fedbench.runtime.ray.hosts import RayHosts

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = Path(tempfile.mkdtemp(prefix="fb", dir="/tmp"))  # short: Ray's sockets lie in it, and their paths are limited

os.environ |= {
    "FEDBENCH_CACHE": str(SCRATCH / "cache"),
    "RAY_TMPDIR": str(SCRATCH),
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    # Methods and models of the tests are imported in other processes too.
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
}
MOST_HOSTS = 3

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_unconfigure() -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a Ray run in one process; they come first with other long ones, so that nobody waits at the end.

    Each process of a Ray takes seconds to start.
    """
    for item in items:
        if needs_ray(item):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "xdist_group"]
            item.add_marker(pytest.mark.xdist_group("ray"))
    items.sort(key=lambda item: (not needs_ray(item), "end_to_end" not in item.path.parts))


def needs_ray(item: pytest.Item) -> bool:
    return "local_ray" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session", autouse=True)
def _without_fsync() -> Iterator[None]:
    """No file waits for the disk: no test cuts the power, and every run writes a dozen files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def _uncompiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Steps of several clients are not compiled, which takes seconds, but where a test says `compiled`."""
    engine = sys.modules.get("fedbench.engine.compiled")
    with engine.uncompiled_steps() if engine and not request.node.get_closest_marker("compiled") else nullcontext():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With --dist loadgroup, a file is a group where no mark says another one: its tests share fixtures."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if group == nodeid else group

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


PAGES = {"cli", "jobs", "papers", "report", "results", "studies"}
"""Folders of tests in which pages are written."""


@pytest.fixture(scope="module", autouse=True)
def no_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """PNG and SVG take as long as the rest of a page, and nobody but test_pictures.py looks at them."""
    path = request.path.relative_to(ROOT / "tests")
    with pytest.MonkeyPatch.context() as patch:
        if path.parts[0] in PAGES and path.name != "test_pictures.py":
            patch.setitem(sys.modules, "fedbench.report.pictures", SimpleNamespace(write_pictures=lambda *given: []))
        yield


@pytest.fixture(scope="session")
def local_ray() -> Iterator[Any]:
    """One local Ray for all tests that need one: room for three hosts that stay, three more, and a GPU that is none."""
    import ray

    quiet: dict[str, Any] = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    from fedbench.runtime.ray.cluster import start_with_retries

    size = dict(num_cpus=6, num_gpus=1, object_store_memory=200 * 2**20)
    start_with_retries(lambda: ray.init(address="local", **size, **quiet), ray.shutdown)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def ray_hosts(local_ray: Any) -> "Iterator[Callable[[int], RayHosts]]":
    """The first 1 to 3 of three hosts, because starting one takes seconds; whoever is given some has them alone.

    Those that a test kills are made anew, for the next one too.
    """
    from fedbench.runtime.ray.hosts import RayHosts

    started = RayHosts(MOST_HOSTS, cpus=1, gpus=0)
    lent: list[RayHosts] = []

    def first(count: int) -> RayHosts:
        while lent:
            before = lent.pop()
            before.end()
            started._actors[: before.count] = before._actors
        hosts = copy.copy(started)
        hosts.count, hosts._actors, hosts.remarks = count, started._actors[:count], []
        lent.append(hosts)
        return hosts

    yield first
    first(MOST_HOSTS).close()
