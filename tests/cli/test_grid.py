"""The flags of a grid."""

import pytest

from fedbench.cli.grid import FLAGS, read_baselines
from fedbench.errors import ConfigError
from fedbench.studies.compared_methods import BASELINES


def test_flags_of_the_grid_are_read():
    assert read_baselines(["local,fedavg"]) == ["local", "fedavg"]
    assert read_baselines(["none"]) == ()
    assert read_baselines([]) == BASELINES


def test_the_help_names_the_baselines():
    said = {flag.name: flag.description for flag in FLAGS}
    assert f"[default {','.join(BASELINES)}]" in said["baselines"]


def test_a_baseline_that_is_none():
    with pytest.raises(ConfigError):
        read_baselines(["locall"])
