"""The outcomes that a run keeps have the scores of its last round as their means."""

import json

import numpy as np
import pytest

from fedbench.results.outcomes import read_outcomes
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.studies.run import run
from tests.runtime.rounds import play, read, small, stop


@pytest.mark.parametrize(
    ("method", "participation"),
    [("fedper", 0.3), ("centralized", 0.3), ("apfl", 0.3), ("local", 0.3), ("fedavg", 1.0)],
)
def test_their_means_are_the_scores_of_the_last_round(method, participation, tmp_path):
    more = {"method__mixing": "logits"} if method == "apfl" else {}  # whose model is no vector
    asked = small(method, out=str(tmp_path), participation=participation, evaluate={"every": 3}, **more)
    result = run(asked, report=False)
    last = result.clients[result.clients["round"] == 4]
    found = read_outcomes([*(tmp_path / "outcomes").iterdir()], [])
    assert {point for _, point in found} == set(last["point"])
    rows = [
        row
        for client in json.loads((tmp_path / "partition.json").read_text())["0"]["clients"]
        for row in client["test"]
    ]
    for (_, point), kept in found.items():
        own, scored = kept.of("accuracy"), last[last["point"] == point].set_index("client")["test_accuracy"]
        for client, score in scored.items():
            assert own.values[own.clients == client].mean() == pytest.approx(score)
        assert own.rows.tolist() == rows
        assert own.units.tolist() == rows
        assert set(np.unique(own.values)) <= {0.0, 1.0}


def test_they_survive_a_stop_and_change_no_bit_of_the_run(tmp_path):
    asked = small("fedper", participation=0.3, checkpoint={"every": 1})
    plain = play(asked, tmp_path / "whole")
    stop(asked, tmp_path / "cut", 3)
    assert not list((tmp_path / "cut").glob("outcomes/*"))
    play(asked, tmp_path / "cut", resume=True)
    assert read(tmp_path / "cut") == plain
    whole, cut = ((tmp_path / name / "outcomes" / "seed-0.npz").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_the_global_model_has_outcomes_of_its_own():
    points = KeptPoints(True, 3, "fit", lambda round: [0], with_global=True)
    assert list(points.models_to_keep(0, 3)) == ["after_agg", "global", "idle_model"]
    assert points.points("global") == ["global"]
    assert KeptPoints(True, 3, "global", lambda round: [0], with_global=True).points("global") == [
        "after_fit",
        "global",
    ]
