"""The predictions that a run keeps are those that it has scored."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from fedbench.checks.several_hosts import SeveralHosts
from fedbench.config import Config
from fedbench.results.predictions import Predictions, read_predictions
from fedbench.runtime.exchange import Report
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.runtime.observers.kept_predictions import KeptPredictions
from fedbench.studies.run import Result, run
from fedbench.tasks import load
from tests.runtime.rounds import play, read, small, stop

POINTS = ("after_fit", "after_agg")


def kept(method: str, folder: Path, **more) -> Result:
    return run(small(method, save_predictions=True, out=str(folder), **more), report=False)


def accuracies(found: Predictions) -> dict[int, float]:
    right = found.outputs.argmax(1) == found.targets
    return {client: float(right[found.clients == client].mean()) for client in np.unique(found.clients).tolist()}


@pytest.mark.parametrize(
    ("method", "participation"),
    [("fedper", 0.3), ("fedper", 1.0), ("centralized", 0.3), ("apfl", 0.3), ("local", 0.3), ("fedavg", 0.3)],
)
def test_they_have_the_scores_of_the_run(method, participation, tmp_path):
    more = {"method__mixing": "logits"} if method == "apfl" else {}  # whose model is no vector
    result = kept(method, tmp_path, participation=participation, evaluate={"every": 3}, **more)
    found = read_predictions(tmp_path)
    assert list(found) == [(0, "after_fit"), (0, "after_agg")]
    clients = json.loads((tmp_path / "partition.json").read_text())["0"]["clients"]
    last = result.clients[result.clients["round"] == 4]
    for point in POINTS:
        own, scored = found[0, point], last[last["point"] == point]
        assert accuracies(own) == pytest.approx(dict(zip(scored["client"], scored["test_accuracy"], strict=True)))
        assert own.rows.tolist() == [row for client in clients for row in client["test"]]
        assert own.outputs.dtype == np.float32


def test_they_survive_a_stop_and_change_no_bit_of_the_run(tmp_path):
    asked = small("fedper", participation=0.3, checkpoint={"every": 1})
    plain = play(asked, tmp_path / "plain")
    asked = asked.model_copy(update={"save_predictions": True})
    assert play(asked, tmp_path / "whole") == plain
    stop(asked, tmp_path / "cut", 3)
    assert not list((tmp_path / "cut").glob("predictions/*"))
    play(asked, tmp_path / "cut", resume=True)
    assert read(tmp_path / "cut") == plain
    whole, cut = ((tmp_path / name / "predictions" / "seed-0.npz").read_bytes() for name in ("whole", "cut"))
    assert whole == cut
    assert not (tmp_path / "plain" / "predictions").exists()


def test_seeds_lie_side_by_side(tmp_path):
    folder = kept("fedper", tmp_path, rounds=1, seeds=[0, 1]).folder
    assert sorted(path.name for path in (folder / "predictions").iterdir()) == ["seed-0.npz", "seed-1.npz"]


def test_hosts_change_no_bit(tmp_path):
    config = small("fedper", save_predictions=True)
    for name, hosts in (("here", None), ("there", SeveralHosts(2))):
        play(config, tmp_path / name, hosts)
    here, there = ((tmp_path / name / "predictions" / "seed-0.npz").read_bytes() for name in ("here", "there"))
    assert here == there


def test_a_run_without_them_keeps_its_identity():
    assert small("fedper").key() == small("fedper", save_predictions=False).key()
    assert small("fedper").key() != small("fedper", save_predictions=True).key()


def test_a_client_whose_last_fit_failed_is_named(tmp_path):
    points = KeptPoints(True, 1, "fit", lambda round: [0])
    keeper = KeptPredictions(Config(rounds=1, save_predictions=True), 0, points, tmp_path, load("classification"))
    (line,) = keeper.on_reports(0, [Report(0, failure="it broke")])
    assert line == "save_predictions: client 0 has none at after_fit: its last fit failed"


def test_further_metrics_are_those_of_the_run(tmp_path):
    """What `evaluate.metrics` records for each client is what its predictions give."""
    result = kept("fedavg", tmp_path, evaluate={"metrics": ["f1_macro"]})
    found = read_predictions(tmp_path)[0, "after_agg"]
    own = result.clients.query("point == 'after_agg' and round == 4 and client == 2")["test_f1_macro"].item()
    of = found.of(2)
    held = sorted({*of.targets.tolist(), *of.outputs.argmax(1).tolist()})
    assert own == pytest.approx(f1_score(of.targets, of.outputs.argmax(1), labels=held, average="macro"))
    assert torch.from_numpy(found.outputs).isfinite().all()
