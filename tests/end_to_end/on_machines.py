"""Machines that share neither memory nor files: the same bits, and a machine that is lost costs no run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ray.util import placement_group_table, remove_placement_group

from fedbench.config import Config
from fedbench.data.prepared import PreparedDataset
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import resolve
from fedbench.jobs.schedule import run_jobs
from fedbench.jobs.trial_resources import bundles
from fedbench.results.events import Evaluation, Event, Remark
from fedbench.runtime.drive import drive
from fedbench.runtime.ray import cluster
from fedbench.runtime.ray.placement_groups import reserve
from tests.machines import Machines, compared, hosts_on
from tests.runtime.rounds import play, read, small

METHODS = ("fedavg", "fedper", "fedcac", "co-pfl", "fedamp", "ditto", "fedala")
"""Without private states, with private entries, with states that grow, with an extra pass."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory) -> Iterator[Machines]:
    started = Machines(2, tmp_path_factory.getbasetemp())
    yield started
    started.close()


@pytest.fixture
def ray(machines) -> Iterator[Any]:
    with machines.joined() as joined:
        yield joined


@pytest.mark.parametrize("methods", [("fedmosaic",), METHODS], ids=["fedmosaic", "others"])
def test_three_machines_give_the_bits_of_one_process(methods, ray, machines, tmp_path):
    """They begin with empty caches, and hold afterwards what the driver's holds."""
    assert compared(methods, tmp_path, ["on 3 machines"]) == {"on 3 machines": []}
    known = PreparedDataset.of(resolve(small()).dataset)
    for worker in ("worker-0", "worker-1"):
        (copy,) = (machines.folder / worker / "decoded").glob("digits-*/")
        assert sorted(path.name for path in copy.iterdir()) == sorted(known.files())


def test_a_head_without_a_gpu_gives_trials_and_hosts_those_of_the_workers(ray, machines):
    cluster.cluster_offer.cache_clear()
    trial, hosts = (
        resolve(small(resources={"address": machines.address, "hosts": asked})).config.resources
        for asked in (0, "auto")
    )
    assert bundles(Config(resources=trial)) == [{"CPU": 1.0, "GPU": 1.0}]
    assert (hosts.hosts, hosts.gpus_per_host) == (2, 1)
    group = reserve(hosts.hosts, hosts.cpus_per_host, hosts.gpus_per_host)
    places = placement_group_table(group)["bundles_to_node_id"].values()
    assert ray.get_runtime_context().get_node_id() not in places
    assert len(set(places)) == 2
    remove_placement_group(group)
    assert cluster.describe_machines(ray).endswith("(2 CPU), worker-0 (1 CPU, 1 GPU), worker-1 (1 CPU, 1 GPU)")


def test_trials_on_other_machines_leave_what_they_leave_here(ray, machines, tmp_path):
    """They see neither the data nor the results folder."""
    runs = [resolve(small("fedper", rounds=2, seeds=[seed])) for seed in range(2)]
    configs, data = [run.config for run in runs], PreparedDataset.of(runs[0].dataset)
    expected = [play(config, tmp_path / f"here-{config.seeds[0]}") for config in configs]
    for config in configs:
        config.resources.address = machines.address
    jobs = [Job(config, tmp_path / "run" / str(config.seeds[0]), "fedper", data=data) for config in configs]
    with filled(ray):
        found = run_jobs(jobs, tmp_path / ".tune", 2, lambda outcomes, running: None)
    assert set(found.values()) == {Outcome("done")}
    assert [read(job.folder) for job in jobs] == expected
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["0", "1"]


@contextmanager
def filled(ray: Any) -> Iterator[None]:
    """This machine has no room left, so that whatever needs a core is on another one."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    guest = ray.remote(Guest).options(num_cpus=2, scheduling_strategy=here).remote()
    ray.get(guest.came.remote())
    yield
    ray.kill(guest)


class Guest:
    def came(self) -> None:
        """Answers once it has its cores."""


def test_a_machine_that_is_lost_costs_the_rounds_since_the_checkpoint(ray, machines, tmp_path):
    """Its clients' states come from the checkpoint, which the driver gathered; the numbers are those of a quiet run.

    The last test, because the machine stays lost.
    """
    config = small("fedper", rounds=8, checkpoint__every=2)
    expected = play(config, tmp_path / "undisturbed")
    warnings: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, Remark):
            warnings.append(event.text)
        elif isinstance(event, Evaluation) and event.round == 5 and len(warnings) == 1:
            machines.lose(0 if "worker-0" in warnings[0] else 1)

    resolved = resolve(config)
    config = resolved.config
    folder = tmp_path / "disturbed"
    folder.mkdir()
    with hosts_on(2, "strict_spread") as hosts:
        drive(resolved, folder, hosts, watch)
    assert read(folder) == expected
    assert "private states lie on the machines of their hosts" in warnings[0]
    assert any("is lost with its host: continuing from the last checkpoint" in text for text in warnings), warnings
