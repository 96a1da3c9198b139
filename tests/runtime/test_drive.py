"""Runs in their folders: what is told of them, and where they go on."""

from fedbench.runtime.drive import Assignment, drive_all
from fedbench.runtime.hosts import InProcess
from fedbench.studies.resolve import resolve
from tests.runtime.rounds import play, read, small, stop


def test_a_torn_line_is_no_part_of_the_run(tmp_path):
    config = small("fedper", checkpoint={"every": 2})
    stop(config, tmp_path / "a", 4)
    for name in ("metrics.jsonl", "timings.jsonl"):
        with open(tmp_path / "a" / name, "a") as file:
            file.write('{"seed": 0, "rou')
    assert play(config, tmp_path / "a", resume=True) == play(config, tmp_path / "b")


def test_runs_that_are_driven_one_after_another_are_told_apart_and_leave_what_they_would_alone(tmp_path):
    runs = [resolve(small("fedper", rounds=2, seeds=[seed], checkpoint={"every": 1})) for seed in (0, 5)]
    configs, dataset, told = [config for config, _ in runs], runs[0][1], []
    folders = [tmp_path / "a", tmp_path / "b"]
    stop(configs[1], folders[1], 2)
    folders[0].mkdir()
    given = [Assignment(config, folder, resume=True) for config, folder in zip(configs, folders, strict=True)]
    drive_all(given, InProcess(dataset), dataset, told.append)
    steps = [(event["assignment"], *(event.keys() & {"begun", "restored", "round", "ended"})) for event in told]
    alone = [(0, "begun"), (0, "round"), (0, "round"), (0, "ended")]
    assert [step for step in steps if len(step) > 1] == [
        *alone,
        *((1, name) for name in ("begun", "restored", "round", "round", "ended")),
    ]
    for config, folder in zip(configs, folders, strict=True):
        assert read(folder) == play(config, tmp_path / f"alone {folder.name}")
