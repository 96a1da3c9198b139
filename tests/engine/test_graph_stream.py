"""A stream of a GPU: work is captured without being done, and repeated on the same memory."""

import pytest
import torch

from fedbench.engine.graph_stream import GraphStream

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")]


def test_a_replay_repeats_the_work():
    stream, count = GraphStream(torch.device("cuda")), torch.zeros((), device="cuda")
    stream.follow()
    with stream.active():
        replay = stream.capture(lambda: count.add_(1))
        assert float(count) == 0
        for _ in range(3):
            replay()
    stream.lead()
    assert float(count) == 3


def test_waiting_is_an_error_where_it_is_forbidden():
    number = torch.ones((), device="cuda")
    with GraphStream(torch.device("cuda")).without_waiting(), pytest.raises(RuntimeError, match="synchronizing"):
        number.item()
    assert number.item() == 1
