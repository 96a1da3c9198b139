import pytest

from fedbench.checks.check import CheckFailure
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.situations import client_fails, joins_late, median, noise
from fedbench.errors import ConfigError
from fedbench.methods.base import Method


class Late(Method):
    """Refuses a median after round 1 has begun."""

    def aggregate(self, server, uploads):
        if self.context.aggregator.name == "median" and server.round > 1:
            raise ValueError("no median, please")
        super().aggregate(server, uploads)

    aggregate.uses_aggregator = True  # type: ignore[attr-defined]


class Early(Method):
    def check(self):
        if self.context.newcomers:
            raise ConfigError("partition.new_clients: not here; leave it out")
        return ()


def test_what_fails_late_is_no_refusal():
    with MethodRuns(Late) as runs, pytest.raises(CheckFailure, match="neither works nor is refused before round 1"):
        median(runs)


def test_what_is_refused_early_is_fine():
    with MethodRuns(Early) as runs:
        assert joins_late(runs) == "refused before round 1: partition.new_clients: not here; leave it out"


def test_a_client_that_fails_and_noise():
    with MethodRuns("fedavg") as runs:
        assert client_fails(runs) == noise(runs) == ""
