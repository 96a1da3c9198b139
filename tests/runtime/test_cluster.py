"""What Ray's processes inherit is no business of the caller's environment."""

import os
import socket

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime import cluster


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
    cluster.offer.cache_clear()
    offer = cluster.offer("127.0.0.1:1")  # the connection that is there is used
    assert offer.free["CPU"] <= 6
    assert [machine["CPU"] for machine in offer.machines] == [6]
    assert cluster.offer("127.0.0.1:1") is offer
    cluster.offer.cache_clear()


def test_machines_are_told_by_name_with_what_they_have(local_ray):
    assert cluster.described(local_ray) == f"1 machine: {socket.gethostname()} (6 CPU)"


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

    cluster.patiently(late, lambda: starts.append("undone"))
    assert starts == ["tried", "undone", "tried"]
    assert caplog.messages == ["Ray did not start, it is tried again: not yet"]

    def never() -> None:
        raise Exception("The current node timed out.\nLast lines of its log: ...")

    with pytest.raises(ConfigError) as error:
        cluster.patiently(never, lambda: None)
    assert str(error.value).startswith("Ray could not be started in 3 attempts (The current node timed out.): ")
    assert "\n" not in str(error.value)
