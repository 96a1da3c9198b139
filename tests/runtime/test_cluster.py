"""What Ray's processes inherit is no business of the caller's environment."""

import os

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
