"""What a trial reserves, and the refusal of one that never fits."""

import pytest

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.trial_resources import bundles, ray_for
from tests.runtime.rounds import small


@pytest.mark.parametrize(
    ("resources", "reserved"),
    [
        ({"hosts": 0}, [{"CPU": 1.0}]),
        ({"hosts": 0, "gpus_per_host": 0.5}, [{"CPU": 1.0, "GPU": 0.5}]),
        ({"hosts": 2, "cpus_per_host": 3}, [{}, {"CPU": 3.0}, {"CPU": 3.0}]),
        ({"hosts": 1, "gpus_per_host": 0.25}, [{}, {"CPU": 1.0, "GPU": 0.25}]),
    ],
)
def test_a_trial_reserves_what_its_hosts_need_and_nothing_for_its_driver(resources, reserved):
    assert bundles(Config(resources={"gpus_per_host": 0, **resources})) == reserved


def test_a_trial_that_can_never_fit_is_refused(local_ray):
    asked = small(resources={"hosts": 99, "gpus_per_host": 0})
    refusal = r"resources: one trial needs 99 CPU \(99 hosts\), there are 6: lower --hosts"
    with pytest.raises(ConfigError, match=refusal), ray_for(asked, None):
        pass
