"""Whatever is killed, whenever: the run finishes, at once or with the same command again, with the same bits."""

import os
import signal
from pathlib import Path

import pytest

from fedbench import cache_folder
from fedbench.cli import main
from fedbench.config import Config
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.end_to_end.commands import processes, rounds_in, started
from tests.machines import apart, possible
from tests.runtime.rounds import read

ASKED = {
    "method": "fedper",
    "model": {"name": "mlp", "hidden": 16},
    "train": {"epochs": 2, "lr": 0.1},
    "rounds": 60,
    "participation": 0.5,
    "checkpoint": {"every": 4},
}
WORDS = [
    "run",
    "--method",
    "fedper",
    "--model",
    "mlp",
    "--model.hidden",
    "16",
    "--train.epochs",
    "2",
    "--train.lr",
    "0.1",
    "--rounds",
    "60",
    "--participation",
    "0.5",
    "--checkpoint.every",
    "4",
    "--out",
    "out",
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the run records where nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(Config(**ASKED, out=folder, resources={"hosts": 0}), report=False)
    return read(folder)


@pytest.mark.night
def test_a_host_the_driver_and_ray_are_killed(undisturbed, tmp_path):
    out = tmp_path / "out"
    with started(*WORDS, "--hosts", "2", cwd=tmp_path) as command:
        command.until(lambda: rounds_in(out) >= 4, "round 2 was recorded")
        command.kill_one("ray::HostActor")
        command.until(lambda: "started again" in command.said(), "the host was started again")
        seen = rounds_in(out)
        command.until(lambda: rounds_in(out) >= seen + 8, "the run went on after a host died")
        command.kill_one("ray::DriverActor")
        seen = rounds_in(out)
        command.until(lambda: rounds_in(out) >= seen + 8, "the run went on after the driver died")
        assert command.listens_beyond_loopback() == []
        command.kill_one("raylet")
        assert command.finish() == 0, command.said()
    assert read(out) == undisturbed
    assert "the driver died" in command.said()
    assert "Ray died on this machine (raylet): starting it again" in command.said()
    assert "Raylet is terminated" not in command.said()
    assert Records(out).summary()["complete"]


@pytest.mark.night
def test_rays_control_is_killed_and_the_terminal_is_closed(undisturbed, tmp_path):
    out, memory = tmp_path / "out", Path("/dev/shm")
    before = set(memory.glob("fedbench-*/*"))
    with started(*WORDS, "--hosts", "2", cwd=tmp_path) as command:
        command.until(lambda: rounds_in(out) >= 8, "round 4 was recorded")
        command.kill_one("gcs_server")
        seen = rounds_in(out)
        command.until(lambda: rounds_in(out) >= seen + 8, "the run went on after Ray's control died")
        assert "Ray died on this machine (gcs_server): starting it again" in command.said()
        family = command.family()
        os.killpg(command.process.pid, signal.SIGHUP)
        assert command.finish() == 128 + signal.SIGHUP
        assert command.said().splitlines()[-1].startswith("fedbench: ended by SIGHUP; repeat the command")
        assert not {(p.number, p.start) for p in family} & {(p.number, p.start) for p in processes()}
    assert set(memory.glob("fedbench-*/*")) <= before
    with started(*WORDS, "--hosts", "0", cwd=tmp_path) as again:
        assert again.finish() == 0, again.said()
    assert read(out) == undisturbed


def test_the_command_is_killed_and_given_again(undisturbed, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with started(*WORDS, "--hosts", "0", cwd=tmp_path) as command:
        command.until(lambda: rounds_in(out) >= 20, "round 10 was recorded")
        command.kill()
    assert 20 <= rounds_in(out) < 120
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "--hosts", "0"]) == 0
    assert read(out) == undisturbed
    assert not (out / "checkpoint").exists()


@pytest.mark.night
def test_the_command_is_interrupted_loses_its_driver_and_is_killed_and_given_again(undisturbed, tmp_path):
    out = tmp_path / "out"
    with started(*WORDS, "--hosts", "0", cwd=tmp_path) as command:
        command.until(lambda: rounds_in(out) >= 20, "round 10 was recorded")
        assert command.interrupt() == 130
    first = rounds_in(out)
    assert 20 <= first < 120
    with started(*WORDS, "--hosts", "2", cwd=tmp_path) as command:
        command.until(lambda: rounds_in(out) >= first + 8, "the run went on")
        command.kill_one("ray::DriverActor")
        seen = rounds_in(out)
        command.until(lambda: rounds_in(out) >= seen + 8, "the run went on after the driver died")
        assert "the driver died" in command.said()
        left = command.family()
        command.kill()
        with started(*WORDS, "--hosts", "0", cwd=tmp_path) as again:
            assert again.finish() == 0, again.said()
    assert read(out) == undisturbed
    assert not (out / "checkpoint").exists()
    for process in left:
        process.kill()


@pytest.mark.night
@pytest.mark.skipif(not possible(), reason="mount namespaces are not allowed here")
def test_the_machine_of_the_command_is_lost_and_another_one_goes_on(undisturbed, tmp_path):
    """Both see --out; processes, shared memory and the cache of the first one are gone with it."""
    out = tmp_path / "out"
    with started(*WORDS, "--hosts", "2", cwd=tmp_path, within=apart(cache_folder.root())) as command:
        command.until(lambda: rounds_in(out) >= 20, "round 10 was recorded")
        family = command.family()
        command.kill()
    assert family
    assert rounds_in(out) < 120
    begun = (out / "timings.jsonl").read_text().splitlines()[0]
    with started(*WORDS, "--hosts", "0", cwd=tmp_path, within=apart(cache_folder.root())) as another:
        assert another.finish() == 0, another.said()
    assert read(out) == undisturbed
    assert (out / "timings.jsonl").read_text().splitlines()[0] == begun  # it did not begin anew
