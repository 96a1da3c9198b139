"""Shows the rounds of a run, and the stages of a study: tuning, final runs, and the looks of a sequential test."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.jobs.run_job import Watcher
from fedbench.results.events import WatchedEvent
from fedbench.tracking.progress import GridProgress, Progress

NOTEBOOK_PAUSE = 30.0
"""Seconds between two lines in a notebook, where lines stay."""


class Stages:
    """The progress of a study, stage by stage. config: tells on which machines."""

    def __init__(self, what: str, config: Config) -> None:
        self.what, self.config = what, config
        self.failed: dict[str, str] = {}
        self._stage: str | None = None
        self._progress: GridProgress | None = None

    def begin(self, what: str) -> None:
        """Starts another study with this name."""
        self.stop()
        self.what, self._stage = what, None

    def update(self, stage: str, outcomes: Mapping[str, Any], running: Mapping[str, float]) -> None:
        """Takes the outcome of each job of a stage so far (`status` and `error`), and the progress of running ones."""
        if stage != self._stage or self._progress is None:
            self._start_stage(stage, len(outcomes))
        assert self._progress is not None
        self._progress.grow(len(outcomes))
        self.failed |= {name: str(outcome.error) for name, outcome in outcomes.items() if outcome.status == "failed"}
        failed = sum(outcome.status == "failed" for outcome in outcomes.values())
        done = sum(outcome.status != "missing" for outcome in outcomes.values())
        self._progress.update(done, failed, running)

    def stop(self) -> None:
        """Ends the display."""
        if self._progress is not None:
            self._progress.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Omits the display: Tune pickles its callbacks, and a terminal cannot be pickled."""
        return {**vars(self), "_progress": None}

    def _start_stage(self, stage: str, count: int) -> None:
        from fedbench.jobs.trial_resources import describe_cluster

        self.stop()
        is_first, self._stage = self._stage is None, stage
        place = describe_cluster(self.config) if is_first else None
        console = Console(stderr=True)
        self._progress = GridProgress(count, console, pause=NOTEBOOK_PAUSE if console.is_jupyter else 1.0)
        self._progress.start(f"{f'{self.what}, ' if is_first else ''}{stage}: {plural(count, 'run')}")
        if place:
            self._progress.warn(place)


def in_notebook() -> bool:
    """Whether this code runs in a notebook."""
    return Console().is_jupyter


@contextmanager
def shown_in_notebook(config: Config, watch: Watcher | None) -> Iterator[Watcher]:
    """The watcher of a run; without one, a notebook shows the run's progress."""
    if watch is not None or not in_notebook():
        yield watch or (lambda event: None)
        return
    shown = RunProgress(config)
    try:
        yield shown.update
    finally:
        shown.progress.stop()


class RunProgress:
    """The progress of a run, shown from its first event on, so that an invalid configuration prints one line only."""

    def __init__(self, config: Config) -> None:
        console = Console(stderr=True)
        pause = NOTEBOOK_PAUSE if console.is_jupyter else 1.0
        self.config, self.progress, self.begun = config, Progress(console, pause=pause), False

    def update(self, event: WatchedEvent) -> None:
        if not self.begun:
            self.progress.start(title(self.config), self.config.rounds, self.config.seeds)
            self.begun = True
        self.progress.update(event)


def title(config: Config) -> str:
    """Describes the run in one line; if hosts is auto, the run reports them."""
    from fedbench.data.partitions.scheme import clients_by_data

    partition, hosts = config.partition, config.resources.hosts
    where = "" if hosts == "auto" else ", in this process" if hosts == 0 else f", {plural(hosts, 'host')}"
    seeds = f"{len(config.seeds)} seeds" if len(config.seeds) > 1 else f"seed {config.seeds[0]}"
    clients = "the clients of the data" if clients_by_data(partition) else plural(partition.clients, "client")
    what = f"{config.method.name} on {config.data.name}, {partition.name} over {clients}"
    return f"{what}: {plural(config.rounds, 'round')}, {seeds}{where}"
