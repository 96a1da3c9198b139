"""Keys of fleets are checked, and name a run only where they are set."""

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"dropout": 1}, r"dropout = 1: must be a number in \[0, 1\)"),
        ({"stragglers": {"work": 0}}, r"stragglers.work = 0: must be a number in \(0, 1\]"),
        ({"stragglers": {"spread": -1}}, r"stragglers.spread = -1: must be a number in \[0, 5\]"),
        ({"attack": {"name": "alei"}}, "attack.name = 'alei': must be none, sign-flip, .*; did you mean alie"),
        ({"attack": {"name": "alie", "share": 1}}, r"attack.share = 1: must be a number in \(0, 1\)"),
        ({"compression": {"bits": 1}}, r"compression.bits = 1: must be a whole number in \[2, 16\]"),
        ({"compression": {"name": "topk", "share": 0}}, r"compression.share = 0: must be a number in \(0, 1\]"),
        ({"privacy": {"clip": 0}}, "privacy.clip = 0: must be a number > 0"),
        ({"privacy": {"delta": 1}}, r"privacy.delta = 1: must be a number in \(0, 1\)"),
    ],
)
def test_values_out_of_range(keys, line):
    with pytest.raises(ConfigError, match=line):
        Config(**keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"dropout": 0.2},
        {"stragglers": {"share": 0.2}},
        {"attack": {"name": "noise"}},
        {"compression": {"name": "mask"}},
        {"privacy": {"clip": 1.0}},
    ],
)
def test_they_name_a_run_only_where_they_are_set(keys):
    assert Config(**keys).key() != Config().key()
    assert not {"dropout", "stragglers", "attack", "compression", "privacy"} & Config().decisive().keys()
