"""Which level of privacy a run has."""

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.runtime.uploads.client_privacy import ClientBudget
from fedbench.runtime.uploads.privacy import privacy_budget
from fedbench.runtime.uploads.sample_privacy import SampleBudget
from tests.runtime.rounds import driver, small


@pytest.mark.parametrize(("level", "kind"), [("client", ClientBudget), ("sample", SampleBudget)])
def test_the_level_chooses_the_budget_which_needs_noise(level, kind, tmp_path):
    noisy = small("fedavg", privacy={"level": level, "clip": 1.0, "noise": 2.0}).privacy
    run = driver(resolve(small("fedavg")), tmp_path)
    assert type(privacy_budget(noisy, run.method)) is kind
    assert privacy_budget(noisy.model_copy(update={"noise": 0.0}), run.method) is None


@pytest.mark.parametrize(("key", "value"), [("noise", 1.0), ("level", "sample")])
def test_nothing_is_private_without_clipping(key, value):
    with pytest.raises(ConfigError, match=f"privacy.{key} = {value}: without effect without privacy.clip; set it"):
        check_run(resolve(small("fedavg", privacy={key: value})))


@pytest.mark.parametrize("level", ["client", "sample"])
@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("centralized", "centralized trains on the pooled data of all clients, which is not made private"),
        ("scaffold", "clients of scaffold also send the change of their control variate, without noise"),
    ],
)
def test_what_is_sent_openly_is_refused_at_both_levels(method, line, level):
    keys = {"level": level, "clip": 1.0, "noise": 1.0}
    with pytest.raises(ConfigError, match=f"privacy.clip = 1: {line}; leave it out, or compare other methods"):
        check_run(resolve(small(method, privacy=keys)))
