"""The order of the steps, which exclude others, and where all of them begin."""

import pytest
import torch

from fedbench.errors import RunError
from fedbench.jobs.resolve import resolve
from fedbench.methods.base import Method
from fedbench.runtime.uploads.sums import FEW
from tests.runtime.rounds import driver, play, small


def test_clients_clip_before_they_compress(tmp_path):
    """What arrives and what error feedback keeps make up the clipped update."""
    keys = {"privacy": {"clip": 0.01}, "compression": {"name": "topk", "share": 0.1}}
    run = driver(resolve(small("fedavg", rounds=1, **keys)), tmp_path)
    run.begin()
    before, seen, aggregate = run.server.params.clone(), [], run.method.aggregate
    run.method.aggregate = lambda server, own: (seen.extend(own), aggregate(server, own))[1]  # type: ignore[method-assign]
    run.exchange(0)
    for upload in seen:
        kept = run.hosts._host.store.load(upload.client, 1)["residual"]
        assert float((upload.params - before + kept).norm()) == pytest.approx(0.01, rel=1e-3)
        assert torch.count_nonzero(kept)


@pytest.mark.parametrize(("attack", "sums"), [("none", True), ("sign-flip", False)])
def test_hosts_add_nothing_up_where_attackers_replace_uploads(attack, sums):
    partition = {"name": "iid", "clients": FEW["cpu"] + 6}
    run = driver(resolve(small("fedavg", partition=partition, attack={"name": attack})))
    assert bool(run.uploads.sums.shares(range(FEW["cpu"] + 6), "cpu")) == sums


class Gradient(Method):
    """Sends how far a client moved, and a reference that is the mistake asked for."""

    def train(self, client, received):
        upload = super().train(client, received)
        return upload.add(params=upload.params - client.message.params)

    def reference(self, message, upload):
        return torch.zeros_like(message.params) if upload.client else message.parameters


class Number(Method):
    """A reference that is no tensor."""

    def reference(self, message, upload):
        return 0.0


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("Gradient", r"Gradient.reference fails: AttributeError: the message has no field 'parameters'.*test_chain"),
        ("Number", r"Number.reference must return a tensor like upload.params, or None; it returned a value of type"),
    ],
)
def test_a_mistake_in_a_reference_ends_the_run_with_its_line(kind, line, tmp_path):
    with pytest.raises(RunError, match=line):
        play(small(f"{__name__}:{kind}", attack={"name": "sign-flip"}), tmp_path)
