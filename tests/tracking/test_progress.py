"""The display says how far a run is: bars on a terminal, throttled lines elsewhere."""

import io

from rich.console import Console

from fedbench.results.events import Evaluation, NewcomersJoin, Remark
from fedbench.tasks import load
from fedbench.tracking.progress import GridProgress, Progress

ACCURACY = load("classification").primary


class Clock:
    """A clock that tests move by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def plain() -> Console:
    return Console(file=io.StringIO(), width=200)


def event(round_, seed=0, accuracy=0.5, rounds=10, seconds=0.1):
    lines = [
        {"point": "after_fit", "test_accuracy": accuracy + 0.1},
        {"point": "after_agg", "test_accuracy": accuracy},
    ]
    return Evaluation(seed, round_, ACCURACY, lines, seconds=seconds)


def run(progress, clock, seconds, rounds=10, seeds=(0,), title="fedcac on digits"):
    progress.start(title, rounds, seeds)
    for seed in seeds:
        for round_ in range(1, rounds + 1):
            clock.now += seconds
            progress.update(event(round_, seed, rounds=rounds))
    progress.stop()
    return progress.console.file.getvalue().splitlines()


def test_first_line_says_what_runs():
    clock = Clock()
    assert run(Progress(plain(), clock), clock, 5)[0] == "fedcac on digits"


def test_one_plain_line_per_evaluated_round_with_both_points():
    clock = Clock()
    lines = run(Progress(plain(), clock), clock, 5)
    assert len(lines) == 11
    assert lines[3] == "round 3/10  after fit 60.0%  after agg 50.0%  0.1 s/round  35 s left"


def test_plain_lines_come_once_a_second_at_most_but_first_and_last_always():
    clock = Clock()
    lines = run(Progress(plain(), clock), clock, 0.01, rounds=100)
    assert [line.split("  ")[0] for line in lines[1:]] == ["round 1/100", "round 100/100"]


def test_a_stopped_run_shows_its_last_line():
    progress = Progress(plain(), Clock())
    progress.start("t", 10, [0])
    for round_ in (1, 2, 3):
        progress.update(event(round_))
    progress.stop()
    assert "round 3/10" in progress.console.file.getvalue().splitlines()[-1]


def test_time_left_counts_all_seeds():
    clock = Clock()
    lines = run(Progress(plain(), clock), clock, 60, seeds=(3, 4))
    assert lines[5].endswith("15 min left")
    assert lines[5].startswith("seed 3  round 5/10")
    assert "left" not in lines[-1]


def test_time_left_of_a_resumed_run_counts_only_what_this_start_did():
    clock = Clock()
    progress = Progress(plain(), clock)
    progress.start("t", 10, [0, 1])  # seed 0 and 7 rounds of seed 1 were done before
    progress.update(event(8, seed=1, seconds=20))
    assert progress.console.file.getvalue().splitlines()[-1].endswith("40 s left")
    clock.now = 30.0
    progress.update(event(9, seed=1, seconds=20))
    assert progress.console.file.getvalue().splitlines()[-1].endswith("30 s left")


def test_newcomers_that_join_are_said():
    progress = Progress(plain(), Clock())
    progress.start("fedcac on digits", 10, [0, 1])
    progress.update(NewcomersJoin(0, 10, 20))
    progress.stop()
    assert progress.console.file.getvalue().splitlines()[1:] == ["seed 0  round 10/10  20 newcomers joining"]


def test_notes_are_printed_whole():
    progress = Progress(plain(), Clock())
    progress.start("t", 10, [0])
    progress.update(Remark("client 3 left out in round 2: loss is not finite [nan]"))
    assert "client 3 left out in round 2: loss is not finite [nan]" in progress.console.file.getvalue()


def test_a_terminal_gets_a_live_bar():
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    clock = Clock()
    text = "\n".join(run(Progress(console, clock), clock, 5))
    assert "10/10" in text
    assert "after agg 50.0%" in text


def test_the_time_left_is_not_guessed_from_a_part_of_the_first_trial():
    clock = Clock()
    progress = GridProgress(4, plain(), clock)
    progress.start("grid of 4")
    clock.now = 30.0  # most of them for the start of a process
    progress.update(0, 0, {"tau=0.3": 0.2})
    clock.now = 32.0
    progress.update(1, 0, {})
    progress.stop()
    assert progress.console.file.getvalue().splitlines()[1:] == [
        "trials 0/4  running tau=0.3 (20%)",
        "trials 1/4  96 s left for these runs",
    ]


def test_grid_lines_name_what_runs():
    clock = Clock()
    progress = GridProgress(4, plain(), clock)
    progress.start("grid of 4")
    progress.update(0, 0, {"tau=0.3": 0.0})
    clock.now = 30.0
    progress.update(2, 1, {"tau=0.5": 0.5})
    clock.now = 35.0
    progress.update(4, 1, {})
    progress.update(4, 1, {})
    progress.stop()
    assert progress.console.file.getvalue().splitlines() == [
        "grid of 4",
        "trials 0/4  running tau=0.3",
        "trials 2/4  1 failed  running tau=0.5 (50%)  18 s left for these runs",
        "trials 4/4  1 failed",
    ]
