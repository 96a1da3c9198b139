"""Nothing that only observes changes a number."""

import json

from fedbench.jobs.resolve import resolve
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.observers.observers import Observers
from fedbench.runtime.observers.recorder import Recorder
from tests.runtime.rounds import driver, play, small


def test_scores_are_those_of_a_run_with_a_recorder_alone(tmp_path):
    more = dict(dropout=0.3, stragglers={"spread": 0.4}, save_models=True, save_predictions=True, log_clients=True)
    config = small("ditto", rounds=3, participation=0.5, **more)
    (tmp_path / "alone").mkdir()
    alone = driver(resolve(config), tmp_path / "alone")
    alone.observers = Observers([alone.recorder])
    alone.run()
    expected = (tmp_path / "alone" / "metrics.jsonl").read_text()
    assert play(config, tmp_path / "all")["metrics.jsonl"].decode() == expected
    assert isinstance(alone.recorder, Recorder)
    assert isinstance(alone.hosts, InProcess)
    assert {json.loads(line)["round"] for line in expected.splitlines()} == {1, 2, 3}
