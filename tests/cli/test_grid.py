"""The flags of a grid."""

import pytest

from fedbench.cli.grid import read_baselines, read_space
from fedbench.errors import ConfigError


def test_a_space_is_keys_with_values():
    space = read_space(["method.tau=0.3,0.5", "train.lr=[1e-3,0.1]", "train.optimizer=sgd,adam"])
    assert space == {"method.tau": [0.3, 0.5], "train.lr": [0.001, 0.1], "train.optimizer": ["sgd", "adam"]}
    assert read_space([]) is None


def test_flags_of_the_grid_are_read():
    assert read_baselines(["local,fedavg"]) == ["local", "fedavg"]
    assert read_baselines(["none"]) == []
    assert read_baselines([]) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda: read_space(["tau"]),
        lambda: read_space(["tau="]),
        lambda: read_space(["method.tau=0.1", "method.tau=0.2"]),
        lambda: read_baselines(["locall"]),
    ],
)
def test_mistakes_in_them_are_refused(read):
    with pytest.raises(ConfigError):
        read()
