"""Hosts that can never have a place are refused, those that die are made anew, and all start at the same time."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from fedbench.data.partitions import partition
from fedbench.errors import ConfigError
from fedbench.experiments.resolve import resolve
from fedbench.runtime.actors import RayHosts, check_resources
from fedbench.runtime.host import Order, Setup
from tests.runtime.rounds import play, small


def test_an_actor_starts_without_what_takes_long_to_import():
    asked = "import sys, fedbench.runtime.actors; print({'torch', 'lightning', 'ray', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "set()\n"


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
        RayHosts(99, cpus=1, gpus=0)


def test_a_host_that_died_between_two_messages_is_made_anew(local_ray, tmp_path):
    config, dataset = resolve(small("fedper"))
    setup = Setup(config, 0, partition(dataset, config, 0), tmp_path)
    hosts = RayHosts(1, cpus=1, gpus=0)
    try:
        hosts.begin(setup)
        hosts.put_states({3: {"params": torch.ones(2)}}, 1)
        (reply,) = hosts.run([Order(2, [])])
        os.kill(reply.process, signal.SIGKILL)
        assert torch.equal(hosts.get_states(2)[3]["params"], torch.ones(2))
        assert hosts.restarts == ["host 0 died after round 2 and was made anew"]
        (again,) = hosts.run([Order(3, [])])
        assert again.process != reply.process
    finally:
        hosts.close()


def test_a_fit_whose_download_is_gone_is_not_done_again(local_ray, tmp_path):
    """A host dies while its third client trains; uploads of the first two lie where their downloads were."""
    expected = play(small("fedcac", rounds=8), tmp_path / "undisturbed")
    notes, hosts = tmp_path / "notes", RayHosts(1, cpus=1, gpus=0)
    try:
        found = play(
            small("fedcac", rounds=8, method__name="tests.runtime.accidents:Deadly", method__notes=str(notes)),
            tmp_path / "out",
            hosts,
        )
    finally:
        hosts.close()
    assert found == expected
    assert len(hosts._post._arena._sizes) <= 10 + 2  # the dead host's round does not stay in shared memory
    fits = [tuple(map(int, line.split())) for line in notes.read_text().splitlines()]
    third = [client for round, client in fits if round == 3]
    assert len(third) == 11
    assert third[2] == third[3]
