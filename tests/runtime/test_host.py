"""When a host calls a method and at which learning rate, and what is left of a client that fails."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.results.reader import Records
from fedbench.runtime.exchange import ClientTask, Order
from fedbench.runtime.host import Host
from fedbench.studies.run import run
from tests.runtime.accidents import CLIENT, broken, clumsy
from tests.runtime.rounds import SCENES, driver, largest_file, play, small
from tests.runtime.watchful import Watchful, taken


def test_a_model_is_received_once_and_a_survey_has_the_rate_of_the_round_to_come(tmp_path):
    record = play(small("tests.runtime.watchful:Watchful", train__lr_decay=0.5, rounds=3), tmp_path)
    assert taken(Watchful.received) == list(product(range(4), range(10)))
    assert taken(Watchful.answered) == [(0, 1.0)] * 10 + [(2, 0.25)] * 10
    lines = [json.loads(line) for line in record["metrics.jsonl"].splitlines()]
    first, second, third = (line for line in lines if line["point"] == "after_fit")
    for way, size in (("bytes_up", 4), ("bytes_down", 12)):
        assert first[way] == second[way] == third[way] + 10 * size


def test_classes_and_domains_add_up_to_the_whole_and_leave_the_lines_as_they_are(tmp_path):
    asked = [({}, "plain"), ({"by": ["domain", "class"]}, "apart")]
    found = [run(small(rounds=2, **SCENES, evaluate=more, out=tmp_path / name), report=False) for more, name in asked]
    lines = [(result.folder / "metrics.jsonl").read_bytes() for result in found]
    assert lines[0] == lines[1]
    assert found[0].clients.equals(found[1].clients)
    whole = found[1].clients.set_index(["round", "client", "point"])
    groups = Records(found[1].folder).groups()
    assert set(groups["group"]) == {"0", "1", "2", "photo", "sketch/ink"}
    correct = groups.assign(correct=groups["value"] * groups["n"]).groupby(["by", "round", "client", "point"])
    for (_, *key), own in correct:
        assert own["n"].sum() == whole.loc[tuple(key), "test_n"]
        assert own["correct"].sum() == pytest.approx((whole["test_accuracy"] * whole["test_n"]).loc[tuple(key)])


def test_no_room_for_a_state_is_no_failure_of_the_client(tmp_path):
    """Left out, it would change the numbers of a run that can go on once there is room."""
    resolved = resolve(small("local"))
    run = driver(resolved, tmp_path)
    host = Host.of(replace(run.setup, states=tmp_path / "states"), resolved)
    task = ClientTask(CLIENT, run.method.send(run.server, CLIENT), train=True, after_fit=True)
    with largest_file(100), pytest.raises(ConfigError, match=f"state of client {CLIENT} cannot be kept: .*make room"):
        host.work(Order(0, [task]))


def test_a_state_that_is_as_in_the_beginning_again_is_kept(tmp_path):
    play(small("tests.runtime.accidents:Blinking", rounds=4), tmp_path)
    seen = Records(tmp_path).traces().query("client == 0 and name == 'before'")
    assert seen["value"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("in_files", [True, False])
@pytest.mark.parametrize("when", ["fit", "fitted"])
def test_a_client_that_fails_leaves_no_trace_in_its_state(when, in_files, tmp_path):
    resolved = resolve(clumsy(when))
    run = driver(resolved, tmp_path)
    host = Host.of(replace(run.setup, states=tmp_path / "states" if in_files else None), resolved)
    held = []
    for number in range(2):
        task = ClientTask(CLIENT, run.method.send(run.server, CLIENT), kept=number, train=True, after_fit=True)
        report = host.work(Order(number, [task])).reports[0]
        held.append(host.store.load(CLIENT, 1))
    assert report.failure is not None
    assert report.upload is report.kept is None
    assert not report.scores
    assert held[0].keys() == held[1].keys()
    assert held[1]["counters"] is None
    assert torch.equal(held[0]["params"], held[1]["params"])
    assert bool(held[0]["params"].any())


@pytest.mark.parametrize(
    ("method", "more", "where"),
    [
        ("fedavg", {}, "train.lr_scale, or the rate in Diverging.configure_optimizers"),
        ("fedavg", {"train__optimizer": "sgd"}, "train.lr"),
        ("per-fedavg", {}, "train.lr"),  # it makes its own steps
    ],
)
def test_the_rate_to_lower_is_the_one_of_the_steps(method, more, where, tmp_path):
    asked = broken("Diverging", method=method, rounds=1, out=str(tmp_path), **more)
    assert run(asked, report=False).summary["failed"][0][3].endswith(f": lower {where}")


def test_the_common_test_set_has_the_test_images_of_all_clients(tmp_path):
    plain = run(small("local", rounds=1, out=tmp_path / "plain"), report=False).folder
    for method in ("fedavg", "local"):
        asked = small(method, rounds=1, evaluate={"common_test": True}, out=tmp_path / method)
        found = Records(run(asked, report=False).folder)
        own, common = (found.scores("accuracy", split) for split in ("test", "common"))
        own, common = (rows[rows["point"] == "after_agg"].set_index("client") for rows in (own, common))
        assert set(common["n"]) == {own["n"].sum()}
        pooled = (own["value"] * own["n"]).sum() / own["n"].sum()
        if method == "fedavg":  # one model, which all clients have
            assert common["value"].tolist() == pytest.approx([pooled] * 10)
        else:  # a client's model knows its own classes best
            assert common["value"].nunique() > 5
            assert common["value"].mean() < pooled - 0.1
        metrics = found.metrics().set_index("point")
        assert metrics.loc["after_agg", "common_accuracy"] == pytest.approx(common["value"].mean())
    assert (plain / "metrics.jsonl").read_text().count("common") == 0
    lines = [json.loads(line) for line in (tmp_path / "local" / "metrics.jsonl").read_text().splitlines()]
    without = [{key: value for key, value in line.items() if not key.startswith("common_")} for line in lines]
    assert without == [json.loads(line) for line in (plain / "metrics.jsonl").read_text().splitlines()]


def test_a_model_that_is_named_twice_is_one():
    """Its clients share steps, with whichever of the two names they have it."""
    given = {"name": "tests.runtime.networks:Normed,tests.runtime.networks:Deep,tests.runtime.networks:Normed"}
    resolved = resolve(small("local", model=given, train__optimizer="sgd"))
    first, second, third = Host.of(driver(resolved).setup, resolved).models
    assert first is third
    assert first is not second
