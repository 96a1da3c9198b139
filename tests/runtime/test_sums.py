"""Hosts that add uploads up: the same bits wherever clients train, and the mean that the server half makes of all."""

import pytest
import torch

from fedbench.aggregation.exact import LIMIT
from fedbench.methods import load, names
from fedbench.methods.messages import Upload
from fedbench.runtime import sums
from fedbench.runtime.exchange import Reply
from fedbench.runtime.ray_hosts import RayHosts
from fedbench.runtime.sums import FEW, Total, gathered, shares
from fedbench.studies.resolve import resolve
from tests.runtime.accidents import broken
from tests.runtime.rounds import driver, play, small

NEED_ALL = {
    "co-pfl", "fedamp", "fedbn", "fedcac", "fedct", "fedmosaic", "fedpac", "fedprox", "fedselect", "flute",
    "lg-fedavg", "perfed-ckt", "perfedmask", "pfedme",
}  # fmt: skip
"""Methods whose server half looks at single uploads."""
MANY = dict(partition={"name": "iid", "clients": FEW + 6}, rounds=3)


def made(method: str = "fedavg", **more):
    config, dataset = resolve(small(method, **MANY | more))
    return driver(config, dataset)


def uploads_of(count: int) -> list[Upload]:
    stream = torch.Generator().manual_seed(count)
    return [
        Upload(
            client,
            client + 1,
            params=torch.randn(33, generator=stream),
            buffers=torch.rand(4, generator=stream),
            counters=torch.tensor([client, 7]),
        )
        for client in range(count)
    ]


def added(uploads: list[Upload], weights: dict[int, float], hosts: int) -> Upload:
    """As if so many hosts had added them up, each from its last client to its first."""
    totals = [Total() for _ in range(hosts)]
    for upload in reversed(uploads):
        totals[upload.client % hosts].take(upload, weights[upload.client])
    (mean,) = gathered(uploads, totals, weights)
    return mean


def test_every_method_whose_server_half_needs_single_uploads_says_so():
    assert {name for name in names() if not load(name).mean_suffices} == NEED_ALL


@pytest.mark.parametrize("method", sorted(set(names()) - NEED_ALL))
@pytest.mark.parametrize("aggregator", ["mean", "fedadam"])
def test_the_mean_does_what_all_uploads_do(method, aggregator, tmp_path, monkeypatch):
    """One round, so that no rounding is trained upon."""
    if aggregator != "mean" and not load(method).averages:
        pytest.skip("takes no other aggregator")
    servers = []
    for few in (FEW, 0):
        monkeypatch.setattr(sums, "FEW", few)
        config, dataset = resolve(small(method, rounds=1, aggregator=aggregator))
        run = driver(config, dataset, tmp_path)
        run.run()
        servers.append(run.server)
    for name in ("params", "buffers", "counters"):
        one, other = (getattr(server, name) for server in servers)
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_only_rounds_of_many_are_added_up_and_only_where_the_mean_suffices():
    trainers = range(FEW + 1)
    found = shares(made().method, trainers)
    assert sum(found.values()) == pytest.approx(1)
    assert sorted(found) == [*trainers]
    assert not shares(made().method, trainers[:-1])
    assert not shares(made("fedcac").method, trainers)
    assert not shares(made(aggregator="median").method, trainers)
    assert set(shares(made(method__weighting="uniform").method, trainers).values()) == {1 / (FEW + 1)}


def test_weights_are_those_of_the_method():
    run = made(partition={"name": "dirichlet", "clients": FEW + 1})
    sizes = run.context.sizes
    assert shares(run.method, range(FEW + 1)) == {c: pytest.approx(n / sum(sizes)) for c, n in enumerate(sizes)}


def test_any_number_of_hosts_makes_the_same_mean():
    weights = {client: (client + 1) / 55 for client in range(10)}
    means = [added(uploads_of(10), weights, hosts) for hosts in (1, 2, 3, 10)]
    for mean in means[1:]:
        assert all(torch.equal(tensor, means[0].tensors[name]) for name, tensor in mean.tensors.items())
    expected = sum(weights[u.client] * u.params.double() for u in uploads_of(10))
    torch.testing.assert_close(means[0].params, expected.float(), rtol=1e-6, atol=1e-8)
    assert means[0].params.dtype == torch.float32
    assert means[0].counters.tolist() == [9, 7]
    assert means[0].samples == 55


def test_who_did_not_come_has_no_part_in_the_mean():
    weights = dict.fromkeys(range(10), 0.1)
    came = uploads_of(10)[2:5]
    (mean,) = gathered(came, [total_of(came, weights)], weights)
    torch.testing.assert_close(mean.params, torch.stack([u.params for u in uploads_of(10)[2:5]]).mean(0))


def total_of(uploads, weights) -> Total:
    total = Total()
    assert all(total.take(upload, weights[upload.client]) for upload in uploads)
    assert not any(upload.tensors for upload in uploads)
    return total


@pytest.mark.parametrize("all_of_them", [False, True])
def test_numbers_too_large_for_a_sum_travel_and_count(all_of_them):
    """Constant buffers may be infinite, running variances may be large."""
    weights = dict.fromkeys(range(4), 0.25)

    def large() -> list[Upload]:
        uploads = uploads_of(4)
        for upload in uploads if all_of_them else uploads[1:2]:
            upload.tensors["buffers"] = torch.tensor([2.0 * LIMIT, float("inf"), 1.0, -1.0])
        return uploads

    means = [added(large(), weights, hosts) for hosts in (1, 2, 4)]
    for mean in means[1:]:
        assert all(torch.equal(tensor, means[0].tensors[name]) for name, tensor in mean.tensors.items())
    expected = sum(0.25 * u.buffers.double() for u in large()).float()
    torch.testing.assert_close(means[0].buffers, expected)
    torch.testing.assert_close(means[0].params, sum(0.25 * u.params for u in large()))
    assert means[0].counters.tolist() == [3, 7]


@pytest.mark.parametrize("method", ["fedavg", "fedper"])
def test_same_bits_in_this_process_and_on_two_hosts(method, tmp_path, local_ray):
    config = small(method, **MANY)
    hosts = RayHosts(2, cpus=1, gpus=0)
    try:
        assert play(config, tmp_path / "two", hosts) == play(config, tmp_path / "one")
    finally:
        hosts.close()


def test_a_total_travels_instead_of_the_uploads(tmp_path):
    config, dataset = resolve(small(**MANY))
    run, seen = driver(config, dataset, tmp_path), list[Reply]()
    exchange = run.hosts.exchange

    def looked(orders, moves=()):
        replies = exchange(orders, moves)
        seen.extend(replies)
        return replies

    run.hosts.exchange = looked
    run.run()
    assert [bool(reply.total.message.tensors) for reply in seen] == [True] * 3 + [False]
    uploads = [report.upload for reply in seen[:-1] for report in reply.reports]
    assert len(uploads) == 3 * (FEW + 6)
    assert not any(upload.tensors for upload in uploads)
    assert all(upload.nbytes for upload in uploads)  # what a client sends is counted as before


def test_a_client_that_fails_is_left_out_of_a_total(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "FEW", 0)
    config, dataset = resolve(broken("Crashing"))
    run, kept = driver(config, dataset, tmp_path), []
    aggregate = run.method.aggregate
    monkeypatch.setattr(
        run.method, "aggregate", lambda server, uploads: (kept.append(uploads), aggregate(server, uploads))
    )
    run.run()
    assert len(run.record.took_part) == 9
    ((mean,), *_) = kept
    assert mean.samples < sum(run.context.sizes)
    assert all(server.isfinite().all() for server in (run.server.params, mean.params))
