"""The flags of a grid."""

import pickle

import pytest

from fedbench.cli.grid import Stages, read_baselines, read_seeds, read_space, read_trials
from fedbench.errors import ConfigError
from fedbench.studies.execute import Outcome


def test_a_space_is_keys_with_values():
    space = read_space(["method.tau=0.3,0.5", "train.lr=[1e-3,0.1]", "train.optimizer=sgd,adam"])
    assert space == {"method.tau": [0.3, 0.5], "train.lr": [0.001, 0.1], "train.optimizer": ["sgd", "adam"]}
    assert read_space([]) is None


def test_flags_of_the_grid_are_read():
    assert read_trials("3") == 3
    assert read_trials("auto") is None
    assert read_seeds(["0,1", "2"]) == [0, 1, 2]
    assert read_baselines(["local,fedavg"]) == ["local", "fedavg"]
    assert read_baselines(["none"]) == []
    assert read_baselines([]) is read_seeds([]) is read_trials(None) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda: read_space(["tau"]),
        lambda: read_space(["tau="]),
        lambda: read_space(["method.tau=0.1", "method.tau=0.2"]),
        lambda: read_trials("0"),
        lambda: read_trials("many"),
        lambda: read_seeds(["a"]),
        lambda: read_seeds(["1", "1"]),
        lambda: read_seeds(["1.0"]),
        lambda: read_seeds([str(2**31)]),
        lambda: read_baselines(["locall"]),
    ],
)
def test_mistakes_in_them_are_refused(read):
    with pytest.raises(ConfigError):
        read()


def test_the_grid_shows_its_two_stages(capsys):
    stages = Stages("fedcac on digits")
    stages.update({"a": Outcome("done"), "b": Outcome("missing")}, ["b"])
    stages.update({"a": Outcome("done"), "b": Outcome("failed", "loss is NaN")}, [])
    stages.update({"final": Outcome("missing")}, ["final"])
    assert pickle.loads(pickle.dumps(stages)).failed == stages.failed  # Tune does this to whoever watches
    stages.stop()
    text = capsys.readouterr().err
    assert "grid of fedcac on digits: 2 runs" in text
    assert "final runs over the seeds: 1 runs" in text
    assert stages.failed == {"b": "loss is NaN"}
