import torch

from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.recording import Backwards, leaves, same, snapshot, variant
from fedbench.methods.fedavg import FedAvg


def test_everything_that_travels_is_kept():
    with MethodRuns("fedavg") as runs:
        hosts = runs.undisturbed("tiny")
        trained = {(sent.number, sent.client) for sent in hosts.sent if sent.direction == "up"}
        assert trained == {(sent.number, sent.client) for sent in hosts.sent if sent.direction == "down"}
        assert hosts.trained.keys() == trained
        up = [sent for sent in hosts.sent if sent.direction == "up"]
        assert all(torch.equal(sent.tensors["params"], hosts.trained[sent.number, sent.client]) for sent in up)
        assert hosts.untouched


def test_clients_may_take_their_turns_backwards():
    with MethodRuns("fedavg") as runs:
        assert runs.play(runs.config("tiny"), Backwards()) == runs.records("tiny")


def test_a_variant_has_the_name_of_its_method():
    found = variant(FedAvg, send=lambda self, server, client: None)
    assert (found.__name__, found.__module__) == (FedAvg.__name__, FedAvg.__module__)
    assert issubclass(found, FedAvg)


def test_copies_equal_what_they_were_taken_of():
    tree = {"a": torch.arange(3), "b": {"c": torch.ones(2)}, "d": 4}
    copy = snapshot(tree)
    assert same(tree, copy)
    assert [tensor.numel() for tensor in leaves([tree, (torch.zeros(1),)])] == [3, 2, 1]
    copy["b"]["c"].zero_()
    assert not same(tree, copy)
