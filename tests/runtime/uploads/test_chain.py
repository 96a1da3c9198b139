"""The order of the steps, and which exclude others."""

import pytest
import torch

from fedbench.jobs.resolve import resolve
from fedbench.runtime.uploads.sums import FEW
from tests.runtime.rounds import driver, small


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
