"""Uploads that get lost, clients that stop early, and the time of a round."""

from math import exp, log

import numpy as np
import pytest
import torch

from fedbench.aggregation.means import weighted_mean
from fedbench.config import Config
from fedbench.config.fleet import StragglersConfig
from fedbench.config.schema import TrainConfig
from fedbench.engine.fit import Amount
from fedbench.jobs.resolve import resolve
from fedbench.methods import names
from fedbench.results.reader import Records
from fedbench.runtime.drive import drive
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.server.fleet import drawn_share, lost_uploads, round_time, step_time, work_shares
from fedbench.runtime.uploads import sums
from tests.runtime.rounds import driver, play, small


def test_each_upload_is_lost_by_itself_and_the_draw_depends_on_seed_and_round_only():
    everyone = list(range(2000))
    lost = lost_uploads(0, 1, everyone, 0.2)
    assert 0.17 < len(lost) / 2000 < 0.23
    assert lost == lost_uploads(0, 1, everyone, 0.2)
    assert lost not in (lost_uploads(1, 1, everyone, 0.2), lost_uploads(0, 2, everyone, 0.2))
    assert lost < lost_uploads(0, 1, everyone, 0.4)
    assert not lost_uploads(0, 1, everyone, 0.0)


def test_stragglers_are_drawn_apart_from_lost_uploads():
    everyone = list(range(2000))
    late = work_shares(0, 1, everyone, StragglersConfig(share=0.2, work=0.25))
    assert set(late.values()) == {0.25}
    both = len(set(late) & lost_uploads(0, 1, everyone, 0.2))
    assert 0.02 < both / 2000 < 0.06


def test_stragglers_are_not_those_of_fedprox():
    """Its own stragglers (sec. 5.2) come from the stream that is named after them."""
    everyone = list(range(2000))
    late = work_shares(0, 1, everyone, StragglersConfig(share=0.2))
    assert set(late) != drawn_share(0, 1, everyone, 0.2, "stragglers")


def test_times_per_step_are_log_normal_and_those_of_a_client_stay():
    times = np.log([step_time(3, client, 0.5) for client in range(4000)])
    assert abs(times.mean()) < 0.03
    assert times.std() == pytest.approx(0.5, abs=0.02)
    assert step_time(3, 7, 1.0) == pytest.approx(step_time(3, 7, 0.5) ** 2)
    assert step_time(3, 7, 0.0) == 1


def test_a_round_takes_as_long_as_its_slowest_client_whose_upload_arrives():
    steps = {0: 10, 1: 10, 2: 5}
    times = {client: exp(log(step_time(0, client, 0.5))) * count for client, count in steps.items()}
    assert round_time(0, steps, 0.5) == pytest.approx(max(times.values()))
    slowest = max(times, key=times.__getitem__)
    rest = {client: count for client, count in steps.items() if client != slowest}
    assert round_time(0, rest, 0.5) < round_time(0, steps, 0.5)
    assert round_time(0, {}, 0.5) == 0


@pytest.mark.parametrize(
    ("amount", "share", "expected"),
    [
        (Amount(), 0.5, (10, 0)),  # 5 epochs of 4 batches
        (Amount(), 0.01, (1, 0)),
        (Amount(epochs=3), 0.5, (6, 0)),
        (Amount(epochs=3, after=2), 0.5, (6, 8)),
        (Amount(steps=7, after=2), 0.5, (4, 2)),
        (Amount(steps=1), 0.5, (1, 0)),
    ],
)
def test_a_straggler_takes_the_first_share_of_its_steps(amount, share, expected):
    found = amount.part(share, 35, TrainConfig(epochs=5, batch_size=10))
    assert (found.steps, found.after) == expected
    assert amount.part(1.0, 35, TrainConfig()) is amount


def test_a_lost_upload_has_no_part_in_the_mean_and_the_client_keeps_what_it_has(tmp_path):
    run = driver(resolve(small("ditto", dropout=0.5, checkpoint={"every": 0})), tmp_path)
    run.begin()
    kept = []
    aggregate = run.method.aggregate
    run.method.aggregate = lambda server, own: (kept.extend(own), aggregate(server, own))[1]  # type: ignore[method-assign]
    run.exchange(0)
    lost = lost_uploads(0, 1, range(10), 0.5)
    assert 0 < len(lost) < 10
    assert [upload.client for upload in kept] == [client for client in range(10) if client not in lost]
    total = sum(upload.samples for upload in kept)
    assert torch.equal(run.server.params, weighted_mean([u.params for u in kept], [u.samples / total for u in kept]))
    assert all(run.homes.round_saved(client) == 1 for client in range(10))
    assert set(run.scores.last_fit) == set(range(10))
    assert run.record.traces[-1, "lost_uploads"] == len(lost)
    assert run.record.bytes_up == sum(upload.nbytes for upload in kept)
    assert not run.record.failed


@pytest.mark.parametrize("method", names())
def test_every_method_goes_on_without_lost_uploads_and_with_stragglers(method, tmp_path):
    config = small(method, rounds=2, dropout=0.6, stragglers={"share": 0.5, "spread": 0.4}, participation=0.5)
    resolved = resolve(config)
    drive(resolved, tmp_path, InProcess())
    found = Records(tmp_path).clients()
    assert found["test_accuracy"].notna().all()
    drawn = found[(found["point"] == "after_agg") & (found["round"] == 1)]
    assert drawn["participated"].sum() <= 5


def test_local_training_loses_nothing_with_its_uploads(tmp_path):
    scores = []
    for share in (0.0, 0.5):
        play(small("local", dropout=share), tmp_path / str(share))
        scores.append(Records(tmp_path / str(share)).clients().drop(columns="participated"))
    assert scores[0].equals(scores[1])


def test_sums_at_hosts_leave_lost_uploads_out(tmp_path, monkeypatch):
    servers = []
    for few in (sums.FEW["cpu"], 0):
        monkeypatch.setitem(sums.FEW, "cpu", few)
        run = driver(resolve(small("fedavg", rounds=1, dropout=0.5)), tmp_path)
        run.run()
        servers.append(run.server.params)
    torch.testing.assert_close(*servers)


def test_a_round_whose_uploads_are_all_lost_keeps_the_model(tmp_path):
    run = driver(resolve(small("fedavg", participation=1 / 10, dropout=0.9, rounds=6)), tmp_path)
    run.begin()
    for number in range(6):
        before = run.server.params.clone()
        run.exchange(number)
        (client,) = run.server.participants
        assert torch.equal(before, run.server.params) == bool(lost_uploads(0, number + 1, [client], 0.9))
    assert not run.record.idle


def test_a_straggler_stops_early(tmp_path):
    whole, half = (steps_of_round(small(stragglers={"share": 1, "work": work}), tmp_path) for work in (1, 0.5))
    assert [fast / slow for fast, slow in zip(whole, half, strict=True)] == pytest.approx([2] * 10, rel=0.35)


def steps_of_round(config: Config, folder) -> list[int]:
    run = driver(resolve(config), folder)
    run.begin()
    replies, exchange = [], run.hosts.exchange
    run.hosts.exchange = lambda *given: replies.extend(found := exchange(*given)) or found  # type: ignore[method-assign]
    run.exchange(0)
    return [report.steps for reply in replies for report in reply.reports]


def test_without_them_the_run_has_its_old_name():
    assert small().key() == Config(**{**small().model_dump(), "dropout": 0.0, "stragglers": {}}).key()
    assert len({small().key(), small(dropout=0.1).key(), small(stragglers={"share": 0.1}).key()}) == 3
