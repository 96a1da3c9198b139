"""Two snapshots of a tree differ exactly where something was written in between."""

import torch

from fedbench.methods.messages import Message
from fedbench.methods.snapshots import bits_of, first_change, first_rewrite, leaves_of


def tree() -> dict:
    return {"state": {"seen": [1, torch.zeros(3)]}, "message": Message(params=torch.full((2,), torch.nan))}


def test_the_first_write_is_named_by_its_place():
    watched = tree()
    before = leaves_of(watched)
    assert first_change(before, leaves_of(watched)) == ""
    watched["message"].tensors["params"].add_(1)
    assert first_change(before, leaves_of(watched)) == "message.params"
    watched["state"]["seen"][1][0] = 2
    assert first_change(before, leaves_of(watched)) == "state.seen.1"
    watched["state"]["seen"][0] = 5
    assert first_change(before, leaves_of(watched)) == "state.seen.0"


def test_an_entry_more_is_a_change_at_its_place():
    watched = tree()
    before = leaves_of(watched)
    watched["more"] = 1
    assert first_change(before, leaves_of(watched)) == "more"


def test_a_write_that_pytorch_does_not_count_is_seen_in_the_bits():
    watched = tree()
    before = leaves_of(watched)
    copies = [bits_of(value) for _, value, _ in before if isinstance(value, torch.Tensor)]
    assert first_rewrite(before, copies) == "", "not a number equals itself"
    watched["state"]["seen"][1].data.fill_(1)
    assert first_change(before, leaves_of(watched)) == ""
    assert first_rewrite(before, copies) == "state.seen.1"
