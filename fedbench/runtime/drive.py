"""Runs in their folders: begun, or taken up at their checkpoint, and driven to the end."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedbench.config import Config
from fedbench.results.files import locked
from fedbench.runtime import checkpoint
from fedbench.runtime.driver import Driver, Event
from fedbench.runtime.hosts import Hosts
from fedbench.runtime.recorder import Recorder
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.store import StateLostError

RESTARTS = 5
"""Without a newer checkpoint between them."""
PATIENCE = 60.0
"""Seconds for a driver to end whose command was killed."""


@dataclass(frozen=True)
class SeedTask:
    """One seed of a run to be driven: its configuration, its folder, and whether a checkpoint may be there."""

    config: Config
    folder: Path
    resume: bool = False


def drive_all(run: ResolvedRun, tasks: Sequence[SeedTask], hosts: Hosts, on_event: Callable[[Event], None]) -> None:
    """The seeds of a run, one after another. on_event: told when one begins and ends, and what `drive` tells."""
    for number, task in enumerate(tasks):
        tell = partial(_numbered, on_event, number)
        tell({"begun": True})
        tell({"ended": drive(run.of_seed(task.config), task.folder, hosts, tell, task.resume)})


def _numbered(on_event: Callable[[Event], None], number: int, event: Event) -> None:
    on_event({**event, "task": number})


def drive(
    run: ResolvedRun,
    folder: Path,
    hosts: Hosts,
    on_event: Callable[[Event], None] = lambda event: None,
    resume: bool = False,
) -> list[str]:
    """Do a run of one seed in a folder; returns the warnings.

    Where private states are lost with their host, it goes on from the last checkpoint. on_event: told of every
    evaluated round. resume: go on from the checkpoint, if there is one.
    """
    with _alone(folder / "config.yaml"):
        return _driven(run, folder, hosts, on_event, resume)


def _alone(described: Path) -> AbstractContextManager[None]:
    """Wait until the driver of a command that was killed has ended too. described: a file that stays as it is.

    Raises ConfigError where it does not.
    """
    if not described.exists():
        return nullcontext()
    return locked(described, PATIENCE, f"{described.parent}: another driver is at work here")


def _driven(
    run: ResolvedRun,
    folder: Path,
    hosts: Hosts,
    on_event: Callable[[Event], None],
    resume: bool,
) -> list[str]:
    lost, reached = 0, -1
    while lost < RESTARTS:
        recorder = Recorder(folder, run.task)
        found = checkpoint.load(folder / "checkpoint") if resume else None
        if found:
            recorder.restore(found["recorder"])
            on_event({"restored": True})
        else:
            checkpoint.remove(folder / "checkpoint")
            recorder.start()
        if (round := found["record"]["number"] if found else 0) > reached:
            lost, reached = 0, round
        try:
            Driver.of(run, hosts, recorder, on_event).run(found)
        except StateLostError as error:
            where = "from the last checkpoint" if checkpoint.load(folder / "checkpoint") else "from the beginning"
            on_event({"warning": f"{error} with its host: going on {where}"})
            resume, lost = True, lost + 1
            continue
        recorder.write_tables()
        return recorder.warnings
    raise RuntimeError(f"private states were lost {RESTARTS} times in a row: do machines of the cluster come and go?")
