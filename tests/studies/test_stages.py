"""The stages of a study are shown one after the other."""

import pickle
import socket
from typing import Any

import pytest

from fedbench.config import Config
from fedbench.jobs.job import Outcome
from fedbench.runtime.ray import cluster
from fedbench.studies.run import run
from fedbench.studies.stages import Stages, title
from tests.runtime.rounds import small


def test_a_stage_that_grows_is_one_stage(capsys):
    stages = Stages("comparison on digits", Config())
    stages.update("tuning", {"a": Outcome("done")}, {})
    stages.update("tuning", {"a": Outcome("done"), "b": Outcome("stopped")}, {})
    stages.stop()
    text = capsys.readouterr().err
    assert "trials 2/2" in text
    assert "final runs" not in text


def test_both_stages_are_shown(capsys):
    stages = Stages("grid of fedcac on digits", Config())
    stages.update("tuning", {"a": Outcome("done"), "b": Outcome("missing")}, {"b": 0.0})
    stages.update("tuning", {"a": Outcome("done"), "b": Outcome("failed", "loss is NaN")}, {})
    stages.update("final runs over the seeds", {"final": Outcome("missing")}, {"final": 0.0})
    assert pickle.loads(pickle.dumps(stages)).failed == stages.failed  # Tune does this to whoever watches
    stages.stop()
    text = capsys.readouterr().err
    assert "grid of fedcac on digits, tuning: 2 runs" in text
    assert "final runs over the seeds: 1 run\n" in text
    assert stages.failed == {"b": "loss is NaN"}


def test_another_study_begins_anew(capsys):
    stages = Stages("C1", Config())
    stages.update("tuning", {"a": Outcome("missing")}, {"a": 0.0})
    stages.begin("C2")
    stages.update("tuning", {"b": Outcome("missing")}, {"b": 0.0})
    stages.stop()
    assert "C2, tuning: 1 run\n" in capsys.readouterr().err


def test_on_a_cluster_the_first_stage_says_where_trials_run(local_ray, capsys):
    cluster.cluster_offer.cache_clear()
    stages = Stages("grid", Config(resources={"address": "127.0.0.1:1", "cpus_per_host": 2}))
    stages.update("tuning", {"a": Outcome("missing")}, {})
    stages.update("final", {"b": Outcome("missing")}, {})
    stages.stop()
    cluster.cluster_offer.cache_clear()
    machines = f"cluster: 1 machine: {socket.gethostname()} (6 CPU, 1 GPU)"
    room = "room for at most 3 trials of 2 CPU and a share of a GPU at once"
    assert capsys.readouterr().err.count(f"{machines}; {room}; results come to") == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"seeds": [3]}, "fedcac on digits, iid over 10 clients: 5 rounds, seed 3, in this process"),
        ({"seeds": [0, 1], "resources": {"hosts": 2}}, "5 rounds, 2 seeds, 2 hosts"),
        ({"resources": {"hosts": "auto"}}, "5 rounds, seed 0"),
    ],
)
def test_the_title_says_what_runs_where(keys: dict[str, Any], said: str) -> None:
    request = {"method": "fedcac", "partition": {"name": "iid", "clients": 10}, "rounds": 5, "seeds": [0]}
    assert said in title(Config(**{**request, "resources": {"hosts": 0}, **keys}))


def test_a_notebook_shows_the_rounds_of_a_run_that_nobody_watches(monkeypatch, tmp_path, capsys):
    run(small(rounds=2, out=tmp_path / "a"), report=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("fedbench.studies.stages.in_notebook", lambda: True)
    seen: list = []
    run(small(rounds=2, out=tmp_path / "b"), watch=seen.append, report=False)
    assert capsys.readouterr().err == ""
    run(small(rounds=2, out=tmp_path / "c"), report=False)
    told = capsys.readouterr().err
    assert told.startswith("fedavg on digits, dirichlet over 10 clients: 2 rounds, seed 0, in this process\n")
    assert "round 2/2" in told
    assert len(seen) == 2
