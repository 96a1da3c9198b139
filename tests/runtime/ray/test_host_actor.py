"""What a host on another machine keeps there, and what goes back with it."""

import pytest
import ray

from fedbench.data.partitions import partition
from fedbench.data.prepared import PreparedDataset
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.runtime.exchange import ClientTask, Order, Setup
from fedbench.runtime.ray.host_actor import HostActor, HostAddress
from tests.runtime.rounds import driver, small


@pytest.fixture
def setup() -> Setup:
    resolved = resolve(small("fedper"))
    config, dataset = resolved.config, resolved.dataset
    return Setup(config, 0, partition(dataset, config, 0), PreparedDataset.of(dataset))


def address(tmp_path, node: str) -> HostAddress:
    return HostAddress(1, node, tmp_path / "driver" / "run", tmp_path / "scratch", tmp_path / "driver" / "states")


def trained(actor: HostActor) -> dict[int, int]:
    """Client 3 has a state of round 1 now."""
    resolved = resolve(small("fedper"))
    run = driver(resolved)
    actor._host.work(Order(0, [ClientTask(3, run.method.send(run.server, 3), train=True)]))
    return {3: 1}


@pytest.mark.parametrize("near", [True, False])
def test_states_lie_on_the_machine_of_the_host(near, setup, tmp_path, local_ray):
    actor = HostActor()
    status = actor.begin(setup, address(tmp_path, ray.get_runtime_context().get_node_id() if near else "another"))
    assert not status.lacks_data
    trained(actor)
    (state,) = tmp_path.rglob("*.safetensors")
    assert state.is_relative_to(tmp_path / ("driver" if near else "scratch"))
    actor.end()
    assert len(list(tmp_path.rglob("*.safetensors"))) == near  # the driver's folder goes with the driver


def test_a_host_takes_over_what_the_one_before_it_left_on_its_machine(setup, tmp_path, local_ray):
    before, after = HostActor(), HostActor()
    before.begin(setup, address(tmp_path, "another"))
    kept = before.give(trained(before))[1]
    before._scratch._lock.close()  # its process is dead
    after.begin(setup, address(tmp_path, "another"))
    assert after.give({3: 1})[1][3].tobytes() == kept[3].tobytes()
    after.end()


def test_a_machine_without_the_data_says_so_and_begins_once_it_has_them(setup, tmp_path, local_ray, monkeypatch):
    references = {name: ray.put(content) for name, content in setup.data.files().items()}
    unseen = PreparedDataset(tmp_path / "unseen" / setup.data.folder.name, setup.data.content, (), ())
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    actor, there = HostActor(), address(tmp_path, "another")
    lacking = Setup(setup.config, 0, setup.partition, unseen)
    assert actor.begin(lacking, there).lacks_data
    assert not actor.begin(lacking, there, references).lacks_data
    actor.end()


def test_what_a_machine_refuses_names_it(setup, tmp_path, local_ray, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", "/proc/nowhere")
    unseen = PreparedDataset(tmp_path / "unseen" / setup.data.folder.name, setup.data.content, (), ())
    with pytest.raises(ConfigError, match=r"^machine \S+: cache .*: cannot be written"):
        HostActor().begin(Setup(setup.config, 0, setup.partition, unseen), address(tmp_path, "another"), {})
