"""What Ray's processes inherit is no business of the caller's environment."""

import os
import socket

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
