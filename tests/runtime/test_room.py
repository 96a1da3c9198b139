"""Places that hosts can never have are refused."""

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime.room import check_resources, reserve


def test_resources_that_are_there():
    check_resources({"CPU": 2.0, "GPU": 1.0}, {"CPU": 1, "GPU": 0.5}, 2)
    check_resources({"CPU": 1.0}, {"CPU": 0.1}, 10)


@pytest.mark.parametrize(
    ("total", "bundle", "count", "line"),
    [
        ({"CPU": 2.0}, {"CPU": 1.5}, 2, "2 hosts of 1.5 CPU need 3 CPU, there are 2: lower --hosts or --cpus-per-host"),
        (
            {"CPU": 2.0},
            {"CPU": 1, "GPU": 0.5},
            2,
            "2 hosts of 0.5 GPU need 1 GPU, there are 0: lower --hosts or --gpus-per-host",
        ),
    ],
)
def test_resources_that_are_not_there_are_one_line(total, bundle, count, line):
    with pytest.raises(ConfigError) as error:
        check_resources(total, bundle, count)
    assert str(error.value) == f"resources: {line}"


def test_more_hosts_than_the_cluster_holds_are_refused_at_once(local_ray):
    with pytest.raises(ConfigError, match="99 hosts of 1 CPU need 99 CPU, there are 6"):
        reserve(99, cpus=1, gpus=0)
