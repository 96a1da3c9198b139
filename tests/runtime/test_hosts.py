"""The host in the calling process: where it keeps states, and how a checkpoint takes them over."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedbench.jobs.resolve import resolve
from fedbench.runtime.driver import Driver
from fedbench.runtime.exchange import ClientTask, Order, Reply
from fedbench.runtime.hosts import torch_threads
from fedbench.runtime.states.scratch import LARGE
from fedbench.runtime.states.store import StateLostError
from tests.runtime.rounds import driver, small


def begun(tmp_path: Path, states: str) -> Driver:
    """A run whose host is ready, and whose private states in files would lie in a folder of the test's own."""
    resolved = resolve(small("fedper", resources={"hosts": 0, "states": states, "scratch": tmp_path / "scratch"}))
    run = driver(resolved, tmp_path)
    run.hosts.begin(run.setup, run.parts)
    return run


def trained(run: Driver, number: int, kept: int) -> Reply:
    task = ClientTask(3, run.method.send(run.server, 3), kept, train=True)
    return run.hosts.exchange([Order(number, [task])])[0]


@pytest.mark.parametrize("states", ["memory", "disk"])
def test_a_checkpoint_brings_a_new_host_to_where_the_old_one_was(states, tmp_path):
    shard = tmp_path / "shard"
    first, second = begun(tmp_path, states), begun(tmp_path, states)
    trained(first, 0, 0)
    with pytest.raises(StateLostError):
        trained(second, 1, 1)
    first.hosts.snapshot([{3: 1}], [shard])
    second.hosts.restore([{3: 1}], [shard])
    uploads = [trained(run, 1, 1).reports[0].upload for run in (first, second)]
    assert torch.equal(uploads[0].params, uploads[1].params)


@pytest.mark.parametrize(("states", "files"), [("memory", 0), ("disk", 1)])
def test_states_are_files_only_where_that_was_asked_for_and_go_with_the_run(states, files, tmp_path):
    run = begun(tmp_path, states)
    trained(run, 0, 0)
    assert len(list(tmp_path.rglob("*.safetensors"))) == files
    run.hosts.end()
    assert not list(tmp_path.rglob("*.safetensors"))
    run.hosts.close()  # what is over already ends once more


def test_states_that_may_not_fit_into_memory_are_files(tmp_path):
    run = begun(tmp_path, "auto")
    trained(run, 0, 0)
    assert not list(tmp_path.rglob("*.safetensors"))
    run.hosts.begin(replace(run.setup, state_bytes=LARGE + 1), run.parts)
    trained(run, 0, 0)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    run.hosts.end()


def test_the_number_of_threads_is_that_of_before_also_after_an_error():
    before = torch.get_num_threads()

    def fail() -> None:
        with torch_threads(before + 1):
            raise KeyError(torch.get_num_threads())

    with pytest.raises(KeyError, match=str(before + 1)):
        fail()
    assert torch.get_num_threads() == before
