"""States and clients hold what a field declares."""

from dataclasses import dataclass

import pytest
import torch

from fedbench.errors import RunError
from fedbench.methods.client import PrivateState
from fedbench.methods.server import ServerState


@dataclass
class Mine(PrivateState):
    count: int = 0


def test_a_field_is_kept_and_what_is_none_is_refused_by_name():
    state = Mine(count=1)
    state.count += 1
    assert state.count == 2
    with pytest.raises(RunError, match=r"^Mine has no field 'total', so it would be lost: .*`total: TYPE = DEFAULT`"):
        state.total = 3  # type: ignore[attr-defined]


def test_traces_and_warnings_of_a_server_are_of_a_round_and_not_kept():
    server = ServerState(*map(torch.zeros, (2, 0, 0)))
    server.trace("mu", 0.5)
    server.warn("a line")
    assert {"params", "round", "aggregator"} <= server.state().keys()
    assert not {"traces", "warnings", "traced"} & server.state().keys()
    assert ServerState(**server.state()).traces == {}
