"""A grid of real trials: what is killed goes on, what fails is reported, what is done is not done again."""

import json
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.studies.run import run
from tests.end_to_end.commands import Command, rounds_in, started
from tests.runtime.rounds import read

WORDS = [
    "grid",
    "--method",
    "tests.end_to_end.fragile:Fragile",
    "--space",
    "method.strength=13,1,2",
    "--baselines",
    "none",
    "--tune-seeds",
    "90",
    "--seeds",
    "0",
    "--model",
    "mlp",
    "--model.hidden",
    "16",
    "--train.epochs",
    "2",
    "--rounds",
    "60",
    "--checkpoint.every",
    "5",
    "--out",
    "out",
]


DIED = "died: continuing from its last checkpoint"


def finished(out: Path) -> dict[Path, int]:
    """When the summaries of complete runs were written."""
    return {path: path.stat().st_mtime_ns for path in out.glob("run/*/summary.json")}


def under_way(out: Path) -> list[Path]:
    """Runs that have begun and are not over."""
    folders = [path.parent for path in out.glob("run/*/metrics.jsonl")]
    return [f for f in folders if rounds_in(f) >= 10 and not (f / "summary.json").exists()]


def kill_a_trial(command: Command, out: Path) -> None:
    """Kill the process of a trial while its run is under way, and wait until all the runs of then go on."""
    command.until(lambda: bool(under_way(out)), "a trial was under way")
    runs = {folder: rounds_in(folder) for folder in under_way(out)}
    command.kill_one("ray::Trial")
    over = lambda folder: (folder / "summary.json").exists()  # noqa: E731
    command.until(lambda: all(over(f) or rounds_in(f) > seen for f, seen in runs.items()), "the trial went on")
    command.until(lambda: DIED in command.said() or all(map(over, runs)), "that was said")


@pytest.mark.night
def test_a_trial_and_the_grid_are_killed_then_interrupted_and_the_command_given_again(tmp_path):
    out = tmp_path / "out"
    with started(*WORDS, cwd=tmp_path) as command:
        while DIED not in command.said():  # the process may have been one that was done
            kill_a_trial(command, out)
        command.until(lambda: bool(finished(out)), "a trial was finished")
        assert "Traceback" not in command.said()
        before, left = finished(out), command.family()
        command.kill()
        with started(*WORDS, cwd=tmp_path) as stopped:
            stopped.until(lambda: bool(stopped.titled("ray::Trial")), "a trial went on")
            assert stopped.interrupt() == 130, stopped.said()
        with started(*WORDS, cwd=tmp_path) as again:
            assert again.finish() == 0, again.said()
    for process in left:
        process.kill()
    assert before.items() <= finished(out).items()
    assert_complete(out)
    assert "thirteen is too much" in again.said()


def assert_complete(out: Path) -> None:
    """Two points done and one failed, the best one final, and all with the bits of plain runs."""
    plan = Plan.read(out)
    by_value = {entry.values["method.strength"]: entry for entry in plan.points()}
    assert {value: entry.status for value, entry in by_value.items()} == {13: "failed", 1: "done", 2: "done"}
    assert by_value[13].error.startswith("Fragile.start fails: RuntimeError: thirteen is too much (fragile.py:")
    assert plan.choices[plan.subject]["method.strength"] in (1, 2)
    assert [entry.name for entry in plan.failed()] == ["strength=13"]
    assert (out / "report.html").exists()
    assert plan.records(out)[plan.subject].complete()
    for entry in (by_value[1], by_value[2]):
        folder = out / entry.path
        assert Records(folder).summary()["complete"]
        assert read(folder) == alone(folder, out.parent / "alone" / folder.name), folder


def alone(folder: Path, elsewhere: Path) -> dict[str, bytes]:
    """What the run of a folder records when it is run by itself."""
    tree = load_yaml(folder / "config.yaml") | {"out": str(elsewhere)}
    run(Config(**tree), report=False)
    assert json.loads((elsewhere / "summary.json").read_text())["complete"]
    return read(elsewhere)
