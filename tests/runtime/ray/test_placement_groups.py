"""Places that hosts can never have are refused."""

import pytest

from fedbench.errors import ConfigError
from fedbench.runtime.ray.placement_groups import check_resources, reserve, room_on_gpus, share_of_gpu


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


HEAD, ONE, FOUR = {"CPU": 0.0}, {"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 4.0}


def test_hosts_on_gpus_need_their_cores_too():
    assert room_on_gpus([HEAD, ONE, ONE], cpus=1, per_gpu=2) == 4
    assert room_on_gpus([HEAD, ONE, FOUR], cpus=1, per_gpu=2) == 2 + 2
    assert room_on_gpus([{"CPU": 64.0}], cpus=1, per_gpu=2) == 0


@pytest.mark.parametrize(
    ("machines", "hosts", "share"),
    [
        ([HEAD, ONE, ONE], 1, 1),
        ([HEAD, ONE, ONE], 2, 1),
        ([HEAD, ONE, ONE], 3, 0.5),  # with 2/3 of a GPU each, the third would have no place
        ([HEAD, ONE, ONE], 8, 0.25),
        ([HEAD, ONE, FOUR], 4, 0.5),  # the cores beside the four GPUs hold two
        ([{"CPU": 1.0, "GPU": 1.0}], 4, 0.25),  # more hosts than cores, which one machine may hold
        ([{"CPU": 64.0}], 4, 0),
    ],
)
def test_all_hosts_have_a_place_on_their_share_of_a_gpu(machines, hosts, share):
    assert share_of_gpu(machines, 1, hosts) == share
