"""What a server hook may return and leave."""

import pytest
import torch

from fedbench.errors import RunError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedavg import FedAvg
from fedbench.runtime.server.server_half import ServerHalf
from tests.runtime.rounds import driver, small


class Careless(FedAvg):
    """Leaves something in its server that is never kept."""

    def aggregate(self, server, uploads):
        server.aggregator["file"] = open  # no number


def half(method: str = "fedavg") -> ServerHalf:
    run = driver(resolve(small(method)))
    return ServerHalf(run.method, run.initial)


def test_a_state_that_cannot_be_kept_ends_the_run():
    with pytest.raises(RunError, match="server"):
        half(f"{__name__}:Careless").call("aggregate", [])


def test_a_checkpoint_brings_state_and_global_model_back():
    first, other = half("ifca"), half("ifca")
    first.state.round, first.global_model.written = 3, False
    other.restore(first.state.state(), first.global_model.written)
    assert other.state.round == 3
    assert other.global_model.is_missing
    assert other.global_weights() is other.global_message() is None


def test_the_message_with_the_global_model_has_its_weights():
    own = half()
    message = own.global_message()
    assert message is not None
    assert torch.equal(message.params, own.state.params)
