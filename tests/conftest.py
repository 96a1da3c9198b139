"""Every test runs alone on the machine: its own cache, its own Ray, one thread."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

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

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_unconfigure() -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[Any]:
    """One local Ray for all tests that need one: room for four hosts that stay, two more, and a GPU that is none."""
    import ray

    quiet: dict[str, Any] = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    from fedbench.runtime.ray.cluster import start_with_retries

    size = dict(num_cpus=6, num_gpus=1, object_store_memory=200 * 2**20)
    start_with_retries(lambda: ray.init(address="local", **size, **quiet), ray.shutdown)
    yield ray
    ray.shutdown()
