"""Runs in their folders: what is told of them, and where they go on."""

import fcntl

import pytest

from fedbench.errors import ConfigError, RunError
from fedbench.jobs.resolve import resolve
from fedbench.results.events import CheckpointRestored, Evaluation, Event, ModelsBuilt, Remark, SeedBegun, SeedEnded
from fedbench.results.reader import Records
from fedbench.runtime import retries
from fedbench.runtime.drive import SeedTask, drive, drive_seeds
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.states import checkpoint
from fedbench.runtime.states.store import StateLostError
from tests.runtime.rounds import described, play, read, small, stop


def test_a_torn_line_is_no_part_of_the_run(tmp_path):
    config = small("fedper", checkpoint={"every": 2})
    stop(config, tmp_path / "a", 4)
    for name in ("metrics.jsonl", "timings.jsonl"):
        with open(tmp_path / "a" / name, "a") as file:
            file.write('{"seed": 0, "rou')
    assert play(config, tmp_path / "a", resume=True) == play(config, tmp_path / "b")


def test_runs_that_are_driven_one_after_another_are_told_apart_and_leave_what_they_would_alone(tmp_path):
    runs = [resolve(small("fedper", rounds=2, seeds=[seed], checkpoint={"every": 1})) for seed in (0, 5)]
    configs, told = [run.config for run in runs], []
    folders = [tmp_path / "a", tmp_path / "b"]
    stop(configs[1], folders[1], 2)
    folders[0].mkdir()
    tasks = {n: SeedTask(*both, resume=True) for n, both in enumerate(zip(configs, folders, strict=True))}
    drive_seeds(runs[0], tasks, InProcess(), lambda number, event: told.append((number, type(event))))
    assert [step for step in told if step[1] not in (Remark, ModelsBuilt)] == [
        *((0, kind) for kind in (SeedBegun, Evaluation, Evaluation, SeedEnded)),
        *((1, kind) for kind in (SeedBegun, CheckpointRestored, Evaluation, Evaluation, SeedEnded)),
    ]
    for config, folder in zip(configs, folders, strict=True):
        assert read(folder) == play(config, tmp_path / f"alone {folder.name}")


class Forgetful(InProcess):
    """Loses a client's state in the exchanges of these numbers, once each."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__()
        self.numbers = numbers

    def exchange(self, orders, moves=()):
        if orders[0].number in self.numbers:
            self.numbers.remove(orders[0].number)
            raise StateLostError(3, orders[0].number)
        return super().exchange(orders, moves)


@pytest.mark.parametrize(("every", "where"), [(2, "from the last checkpoint"), (0, "from the beginning")])
def test_a_run_whose_states_were_lost_goes_on_and_leaves_the_same_numbers(every, where, tmp_path):
    resolved = resolve(small("fedper", checkpoint={"every": every}))
    config = resolved.config
    (tmp_path / "lost").mkdir()
    told: list[Event] = []
    drive(resolved, tmp_path / "lost", Forgetful([3]), told.append)
    assert read(tmp_path / "lost") == play(config, tmp_path / "quiet")
    said = [event.text for event in told if isinstance(event, Remark)]
    assert said == [f"the private state of client 3, saved in round 3, is lost with its host: continuing {where}"]


def test_a_run_that_begins_anew_leaves_nothing_to_go_on_from(tmp_path):
    config = small("fedper", checkpoint={"every": 1})
    stop(config, tmp_path, 3)
    stop(config, tmp_path, 1)
    assert checkpoint.load(tmp_path / "checkpoint") is None


def test_a_run_whose_states_are_lost_again_and_again_ends_with_a_line(tmp_path):
    resolved = resolve(small("fedper"))
    with pytest.raises(RunError, match=f"private states were lost {retries.LOST_STATES} times"):
        drive(resolved, tmp_path, Forgetful([3] * retries.LOST_STATES))


def test_losses_with_a_newer_checkpoint_between_them_are_counted_anew(tmp_path):
    resolved = resolve(small("fedper", rounds=retries.LOST_STATES + 2, checkpoint={"every": 1}))
    drive(resolved, tmp_path, Forgetful([*range(1, retries.LOST_STATES + 2)]))
    assert Records(tmp_path).metrics()["round"].max() == retries.LOST_STATES + 2


def test_two_drivers_never_work_on_one_run(tmp_path, monkeypatch):
    resolved = resolve(small(rounds=1))
    config = resolved.config
    described(config, tmp_path / "a")
    monkeypatch.setattr("fedbench.runtime.retries.WAIT_FOR_DRIVER", 0)
    with open(tmp_path / "a" / "config.yaml") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the driver of a command that was killed
        with pytest.raises(ConfigError, match="another driver is at work here"):
            drive(resolved, tmp_path / "a", InProcess())
    drive(resolved, tmp_path / "a", InProcess())


@pytest.mark.parametrize("method", ["fedavg", "centralized", "ditto"])
def test_a_schedule_goes_on_after_a_stop_and_wherever_its_place_is_kept(method, tmp_path):
    asked = dict(train__keep_optimizer=True, train__optimizer="module", model="tests.runtime.networks:Scheduled")
    often = {"checkpoint": {"every": 1}, "participation": 0.5}
    whole = play(small(method, **asked, **often), tmp_path / "whole")
    stop(small(method, **asked, **often), tmp_path / "resumed", 3)
    assert play(small(method, **asked, **often), tmp_path / "resumed", resume=True) == whole
    in_files = {"hosts": 0, "states": "disk"}
    assert play(small(method, **asked, participation=0.5, resources=in_files), tmp_path / "files") == whole
    anew = {**asked, "train__keep_optimizer": False}
    assert play(small(method, **anew, participation=0.5), tmp_path / "anew") != whole


@pytest.mark.parametrize("method", ["ditto", "fedkd"])  # fedkd uses the number of rounds
def test_a_run_that_pauses_goes_on_to_the_same_bits(method, tmp_path):
    config = small(method, rounds=4, participation=0.5, evaluate={"every": 2})
    resolved, folder = resolve(config), tmp_path / "paused"
    folder.mkdir()
    assert drive(resolved, folder, InProcess(), pause=2) is None
    held = checkpoint.load(folder / "checkpoint")
    assert held is not None
    assert held["record"]["number"] == 3, "trained while round 2 was evaluated"
    assert not (folder / "clients.parquet").exists()
    assert play(config, folder, resume=True) == play(config, tmp_path / "whole")


@pytest.mark.parametrize("keep", [True, False])
def test_a_schedule_over_all_rounds_uses_their_number(keep, tmp_path):
    own = dict(train__keep_optimizer=keep, train__optimizer="module", model="tests.runtime.networks:Scheduled")
    play(small(rounds=1, checkpoint={"keep": True}, **own), tmp_path)
    held = checkpoint.load(tmp_path / "checkpoint")
    assert held is not None
    assert held["uses_rounds"] is keep
