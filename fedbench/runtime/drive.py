"""Drives the seeds of a run in their folders, from the beginning or from their checkpoints, to the end."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedbench.config import Config
from fedbench.errors import RunError
from fedbench.results.events import CheckpointRestored, Event, Remark, SeedBegun, SeedEnded, SeedPaused
from fedbench.results.files import hold_file_lock
from fedbench.runtime import retries
from fedbench.runtime.driver import Driver
from fedbench.runtime.hosts import Hosts
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.server.failures import refuse_untrained
from fedbench.runtime.states import checkpoint
from fedbench.runtime.states.store import StateLostError


@dataclass(frozen=True)
class SeedTask:
    """One seed of a run to be driven: its configuration, its folder, and whether a checkpoint may be there.

    pause: the round after whose evaluation it stops, to be continued later.
    """

    config: Config
    folder: Path
    resume: bool = False
    pause: int | None = None


def drive_seeds(
    run: ResolvedRun, tasks: Mapping[int, SeedTask], hosts: Hosts, on_event: Callable[[int, Event], None]
) -> None:
    """Drive the seeds of a run, one after another.

    on_event: gets the number of a task with each of its events: those of `drive`, and one when it begins, and when it
    ends or pauses.
    """
    for number, task in tasks.items():
        on_event(number, SeedBegun())
        own = run.of_seed(task.config)
        warnings = drive(own, task.folder, hosts, partial(on_event, number), task.resume, task.pause)
        on_event(number, SeedPaused() if warnings is None else SeedEnded(warnings))


def drive(
    run: ResolvedRun,
    folder: Path,
    hosts: Hosts,
    on_event: Callable[[Event], None] = lambda event: None,
    resume: bool = False,
    pause: int | None = None,
) -> list[str] | None:
    """Drive a run of one seed in its folder; returns the warnings, or None if it has paused.

    If private states are lost with their host, the run continues from the last checkpoint. on_event: gets every
    evaluated round. resume: continue from the checkpoint, if there is one. pause: stop after the evaluation of this
    round, with a checkpoint.
    """
    with only_driver(folder / "config.yaml"):
        lost, reached = 0, -1
        while lost < retries.LOST_STATES:
            recorder = Recorder(folder, run.task)
            kept = checkpoint.load(folder / "checkpoint") if resume else None
            if kept:
                recorder.restore(kept["recorder"])
                on_event(CheckpointRestored())
            else:
                checkpoint.remove(folder / "checkpoint")
                recorder.start()
            if (round := kept["record"]["number"] if kept else 0) > reached:
                lost, reached = 0, round
            try:
                driver = Driver.of(run, hosts, recorder, on_event, pause)
                complete = driver.run(kept)
            except StateLostError as error:
                where = "from the last checkpoint" if checkpoint.load(folder / "checkpoint") else "from the beginning"
                on_event(Remark(f"{error} with its host: continuing {where}"))
                resume, lost = True, lost + 1
                continue
            if not complete:
                return None
            recorder.write_tables()
            refuse_untrained(run.seed, driver.record.fits)
            return recorder.warnings
    raise RunError(f"private states were lost {lost} times in a row: do machines of the cluster come and go?")


def only_driver(described: Path) -> AbstractContextManager[None]:
    """Wait until the driver of a killed command has ended too. described: a file that is replaced only in this block.

    Raises ConfigError if it does not end in time.
    """
    if not described.exists():
        return nullcontext()
    return hold_file_lock(described, retries.WAIT_FOR_DRIVER, f"{described.parent}: another driver is at work here")
