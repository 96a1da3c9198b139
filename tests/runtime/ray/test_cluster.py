"""What Ray's processes inherit is no business of the caller's environment."""

import errno
import os
import socket
import subprocess
import sys

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime.ray import cluster


def test_the_callers_environment_is_as_it_was(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = dict(os.environ)
    with cluster._environment():
        assert "/mine" in os.environ["PYTHONPATH"]
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        assert cluster.COMMAND in os.environ
    assert dict(os.environ) == before


def test_what_a_cluster_has_free_is_asked_once(local_ray):
    cluster.cluster_offer.cache_clear()
    offer = cluster.cluster_offer("127.0.0.1:1")  # the connection that is there is used
    assert offer.free["CPU"] <= 6
    assert [machine["CPU"] for machine in offer.machines] == [6]
    assert cluster.cluster_offer("127.0.0.1:1") is offer
    cluster.cluster_offer.cache_clear()


def test_machines_are_told_by_name_with_what_they_have(local_ray):
    assert cluster.describe_machines(local_ray) == f"1 machine: {socket.gethostname()} (6 CPU, 1 GPU)"


@pytest.mark.parametrize(("local", "found"), [(True, "0"), (False, None)])
def test_a_local_ray_has_a_local_address_and_one_that_joins_a_cluster_has_not(monkeypatch, local, found):
    (name,) = cluster.LOOPBACK
    monkeypatch.delenv(name, raising=False)
    with cluster._environment(local):
        assert os.environ.get(name) == found
    assert name not in os.environ


def test_a_ray_that_does_not_start_is_tried_again_and_then_said_in_one_line(caplog):
    starts: list[str] = []

    def late() -> None:
        starts.append("tried")
        if len(starts) < 2:
            raise TimeoutError("not yet")

    cluster.start_with_retries(late, lambda: starts.append("undone"))
    assert starts == ["tried", "undone", "tried"]
    assert caplog.messages == ["Ray did not start, trying again: not yet"]

    def never() -> None:
        raise Exception("The current node timed out.\nLast lines of its log: ...")

    with pytest.raises(ConfigError) as error:
        cluster.start_with_retries(never, lambda: None)
    assert str(error.value).startswith("Ray could not be started in 3 attempts (The current node timed out.): ")
    assert "ray/session_latest/logs; start" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /j"), "shorter name"),
        (PermissionError(errno.EACCES, "Permission denied", "/tmp/ray/session_1"), "RAY_TMPDIR to a folder that has"),
        (OSError(errno.ENOSPC, "No space left on device"), "RAY_TMPDIR to a folder that has room"),
        (PermissionError(errno.EACCES, "Permission denied", "/dev/shm"), "chmod 1777 /dev/shm"),
    ],
)
def test_what_fails_for_good_is_said_at_once_with_rays_reason_and_what_to_do(error, what):
    starts = []

    def start() -> None:
        starts.append("tried")
        raise error

    with pytest.raises(ConfigError) as caught:
        cluster.start_with_retries(start, lambda: starts.append("undone"))
    assert starts == ["tried", "undone"]
    assert str(error) in str(caught.value)
    assert what in str(caught.value)


def test_a_long_name_of_the_folder_is_rays_own_reason(tmp_path):
    """In a process of its own: a Ray may be connected here."""
    imports = "from fedbench import Config\nfrom fedbench.runtime.ray.cluster import connect\n"
    code = f"{imports}connect(Config()).__enter__()"
    environment = {**os.environ, "RAY_TMPDIR": str(tmp_path / ("j" * 100))}
    words = [sys.executable, "-c", code.replace("Config()", "Config(resources={'hosts': 1})")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("fedbench.errors.ConfigError: Ray cannot start (")
    assert "AF_UNIX path length" in line
    assert "RAY_TMPDIR=/tmp" in line
