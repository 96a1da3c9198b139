"""Hosts that add uploads up: the same bits wherever clients train, and the mean that the server half makes of all."""

import pytest
import torch

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.aggregation.exact import LIMIT
from fedbench.aggregation.rules.mean import Mean
from fedbench.checks.several_hosts import SeveralHosts
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.methods import load, names
from fedbench.methods.base import Method, needs_mean_only, takes_aggregators
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.messages import Upload
from fedbench.module.weights import Weights
from fedbench.runtime.exchange import Reply
from fedbench.runtime.uploads import sums
from fedbench.runtime.uploads.outbox import ADD_BYTES
from fedbench.runtime.uploads.sums import FEW, Total, merged_uploads, upload_shares
from tests.runtime.accidents import broken
from tests.runtime.rounds import driver, play, small

NEED_ALL = {name for name in names() if not needs_mean_only(load(name))}
"""Methods whose server half looks at single uploads."""
MANY = dict(partition={"name": "iid", "clients": FEW["cpu"] + 6}, rounds=3)


def made(method: str = "fedavg", **more):
    resolved = resolve(small(method, **MANY | more))
    return driver(resolved)


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
        totals[upload.client % hosts].take([upload], [weights[upload.client]])
    (mean,) = merged_uploads(uploads, totals, weights)
    return mean


def assert_alike(one, other) -> None:
    """The same within what rounding does."""
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_alike(one[key], other[key])
    elif isinstance(one, Weights):
        assert_alike(vars(one), vars(other))
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_alike(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-7)
    else:
        assert one == other


def test_whoever_leaves_the_server_half_alone_needs_the_mean_only():
    left_alone = {n for n in names() if (load(n).aggregate, load(n).weights) == (Method.aggregate, Method.weights)}
    assert {"fedavg", "fedper", "ditto"} <= left_alone
    assert not left_alone & NEED_ALL
    assert {"fedamp", "fedcac", "fedprox"} <= NEED_ALL


@pytest.mark.parametrize("method", sorted(set(names()) - NEED_ALL))
@pytest.mark.parametrize("aggregator", ["mean", "fedadam"])
def test_the_mean_does_what_all_uploads_do(method, aggregator, tmp_path, monkeypatch):
    """One round, so that no rounding is trained upon."""
    if aggregator != "mean" and not takes_aggregators(load(method)):
        pytest.skip("takes no other aggregator")
    servers = []
    for few in (FEW["cpu"], 0):
        monkeypatch.setitem(sums.FEW, "cpu", few)
        resolved = resolve(small(method, rounds=1, aggregator=aggregator))
        run = driver(resolved, tmp_path)
        run.run()
        servers.append(run.server)
    assert_alike(*(server.state() for server in servers))


def test_only_rounds_of_many_are_added_up_and_only_where_the_mean_suffices():
    trainers = range(FEW["cpu"] + 1)
    found = upload_shares(made().method, trainers, "cpu")
    assert sum(found.values()) == pytest.approx(1)
    assert sorted(found) == [*trainers]
    assert not upload_shares(made().method, trainers[:-1], "cpu")
    assert upload_shares(made().method, trainers[:2], "cuda").keys() == {0, 1}
    assert not upload_shares(made("fedcac").method, trainers, "cuda")
    assert not upload_shares(made(aggregator="median").method, trainers, "cpu")
    uniform = upload_shares(made(method__weighting="uniform").method, trainers, "cpu")
    assert set(uniform.values()) == {1 / (FEW["cpu"] + 1)}


def test_weights_are_those_of_the_method():
    run = made(partition={"name": "dirichlet", "clients": FEW["cpu"] + 1})
    sizes = run.context.sizes
    found = upload_shares(run.method, range(len(sizes)), "cpu")
    assert found == {client: pytest.approx(size / sum(sizes)) for client, size in enumerate(sizes)}


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
    (mean,) = merged_uploads(came, [total_of(came, weights)], weights)
    torch.testing.assert_close(mean.params, torch.stack([u.params for u in uploads_of(10)[2:5]]).mean(0))


def total_of(uploads, weights) -> Total:
    total = Total()
    total.take(uploads, [weights[upload.client] for upload in uploads])
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


def test_only_the_field_with_a_large_number_travels():
    upload = uploads_of(1)[0]
    upload.tensors["buffers"][0] = -LIMIT
    Total().take([upload], [1.0])
    assert [*upload.tensors] == ["buffers"]


@pytest.mark.parametrize(
    "change",
    [
        lambda upload: upload.add(more=torch.zeros(2)),
        lambda upload: upload.add(params=upload.params[:-1]),
        lambda upload: upload.add(params=upload.params[:1]),
        lambda upload: upload.add(params=upload.params.double()),
        lambda upload: upload.add(counters=upload.counters.int()),
    ],
)
@pytest.mark.parametrize("hosts", [1, 2])
def test_uploads_that_differ_end_the_run_in_one_line(change, hosts):
    """Wherever they meet: who has trained with whom decides no number."""
    uploads = uploads_of(4)
    change(uploads[1])
    with pytest.raises(ConfigError, match=r"differ in fields, shapes or types.*without @mean_suffices"):
        added(uploads, dict.fromkeys(range(4), 0.25), hosts)


@pytest.mark.parametrize("together", [False, True])
def test_an_upload_without_fields_differs_from_those_that_have_some(together):
    nothing, full, total = Upload(0, 1), uploads_of(2)[1], Total()
    if not together:
        total.take([nothing], [0.5])
    rest = [nothing, full] if together else [full]
    with pytest.raises(ConfigError, match="differ in fields"):
        total.take(rest, [0.5] * len(rest))


def test_an_error_while_adding_ends_the_run_because_half_of_an_upload_is_in_the_sum():
    upload = uploads_of(1)[0]
    upload.add(odd=torch.zeros(2, dtype=torch.complex64))
    total = Total()
    total.take([upload], [0.5])
    upload = uploads_of(1)[0]
    upload.add(odd=torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ConfigError, match="the upload of client 0 cannot be added to others: "):
        total.take([upload], [0.5])


@pytest.mark.parametrize("turned", [lambda rows: rows.T, lambda rows: rows[:, ::2], lambda rows: rows[0].expand(3, 8)])
def test_however_a_field_lies_in_memory(turned):
    weights = dict.fromkeys(range(3), 1 / 3)

    def matrices() -> list[Upload]:
        return [Upload(u.client, 1, matrix=turned(u.params[:32].view(4, 8))) for u in uploads_of(3)]

    expected = torch.stack([upload.matrix for upload in matrices()]).mean(0)
    torch.testing.assert_close(added(matrices(), weights, 2).matrix, expected)


class ByNumber(FedAvg):
    """With weights of its own, which have no mark."""

    def weights(self, uploads):
        return [1 / len(uploads)] * len(uploads)


class Looking:
    """Not a method: the server half of some."""

    def aggregate(self, server, uploads):
        super().aggregate(server, uploads)


class Mixed(Looking, FedAvg):
    pass


class Sure(ByNumber):
    @mean_suffices
    def weights(self, uploads):
        return super().weights(uploads)


class Child(Sure):
    pass


class Clipped(Mean):
    def combine(self, models, weights, current, memory):
        return super().combine(models, weights, current, memory)


class Rounding:
    """Not an aggregator: the rule of some."""

    def combine(self, models, weights, current, memory):
        return super().combine(models, weights, current, memory)


class Rounded(Rounding, Mean):
    pass


def test_hooks_of_a_users_class_are_trusted_only_where_they_are_marked():
    kinds = (FedAvg, ByNumber, Mixed, Sure, Child)
    assert [needs_mean_only(kind) for kind in kinds] == [True, False, False, True, True]
    assert [takes_aggregators(kind) for kind in (FedAvg, ByNumber, Mixed)] == [True, True, False]
    assert [kind().needs_mean_only for kind in (Mean, Clipped, Rounded)] == [True, False, False]


class Claiming(FedAvg):
    """Says other numbers of samples than it trained on."""

    def train(self, client, received):
        upload = super().train(client, received)
        upload.samples = 1
        return upload


def test_weights_that_come_too_late_end_the_run(tmp_path):
    resolved = resolve(small(f"{__name__}:Claiming", **MANY))
    with pytest.raises(ConfigError, match=r"reports 1 samples of .*without @mean_suffices"):
        driver(resolved, tmp_path).run()


def test_same_bits_in_this_process_and_on_two_hosts(tmp_path):
    config = small("fedper", **MANY)
    assert play(config, tmp_path / "two", SeveralHosts(2)) == play(config, tmp_path / "one")


@pytest.mark.parametrize("nbytes", [5000, 10**9])
def test_uploads_may_be_added_up_in_batches_or_all_at_the_end(nbytes, tmp_path, monkeypatch):
    """As on a GPU. The buffers of batch normalisation have numbers that may not fit."""
    monkeypatch.setattr("fedbench.aggregation.exact.LIMIT", 1.0)  # so that some fields travel
    config = small("fedper", **MANY)
    expected, counts = play(config, tmp_path / "one"), list[int]()
    monkeypatch.setitem(ADD_BYTES, "cpu", nbytes)
    take = Total.take
    monkeypatch.setattr(Total, "take", lambda self, *given: (counts.append(len(given[0])), take(self, *given))[1])
    assert play(config, tmp_path / "many") == expected
    assert sum(counts) == 3 * (FEW["cpu"] + 6)
    assert max(counts) == (FEW["cpu"] + 6 if nbytes > 5000 else min(counts[:-1])) > 1


def test_a_total_travels_instead_of_the_uploads(tmp_path):
    resolved = resolve(small(**MANY))
    run, seen = driver(resolved, tmp_path), list[Reply]()
    exchange = run.hosts.exchange

    def looked(orders, moves=()):
        replies = exchange(orders, moves)
        seen.extend(replies)
        return replies

    run.hosts.exchange = looked
    run.run()
    assert [bool(reply.total.message.tensors) for reply in seen] == [True] * 3 + [False]
    uploads = [report.upload for reply in seen[:-1] for report in reply.reports]
    assert len(uploads) == 3 * (FEW["cpu"] + 6)
    assert not any(upload.tensors for upload in uploads)
    assert all(upload.nbytes for upload in uploads)  # what a client sends is counted as before


def test_a_client_that_fails_is_left_out_of_a_total(tmp_path, monkeypatch):
    monkeypatch.setitem(sums.FEW, "cpu", 0)
    resolved = resolve(broken("Crashing"))
    run, kept = driver(resolved, tmp_path), []
    aggregate = run.method.aggregate
    monkeypatch.setattr(run.method, "aggregate", lambda server, own: (kept.append(own), aggregate(server, own))[1])
    run.run()
    assert len(run.record.took_part) == 9
    ((mean,), *_) = kept
    assert mean.samples < sum(run.context.sizes)
    assert all(server.isfinite().all() for server in (run.server.params, mean.params))
