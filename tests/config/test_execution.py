"""How a run is executed names no run, and is checked like all keys."""

import pytest

from fedbench.config import Config, WandbConfig
from fedbench.errors import ConfigError


@pytest.mark.parametrize("gpus", [1, 2, 0.5, 1 / 3, 0.333, 0.33, 0.25, 0.16, 0.125, 0.01, "auto"])
def test_trials_take_whole_gpus_or_shares_that_use_them_whole(gpus):
    config = Config(resources={"gpus_per_trial": gpus})
    assert config.resources.gpus_per_trial == gpus
    assert config.key() == Config().key(), "it says where a trial runs, not what it is"


@pytest.mark.parametrize("gpus", [0, 0.4, 1.5, "many"])
def test_a_share_that_leaves_a_part_of_a_gpu_unused_is_refused(gpus):
    with pytest.raises(ConfigError, match=r"resources\.gpus_per_trial"):
        Config(resources={"gpus_per_trial": gpus})


def test_wandb_s_variables_are_defaults(monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    found = WandbConfig()
    assert (found.project, found.tags) == ("mine", ["a", "b"])
    assert Config(wandb={"project": "other"}).wandb.project == "other"
