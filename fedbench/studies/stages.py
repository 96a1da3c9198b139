"""Shows the stages of a study: tuning, final runs, and the looks of a race."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from fedbench.config import Config
from fedbench.results.progress import GridProgress
from fedbench.results.quantities import plural

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
            self._next(stage, len(outcomes))
        assert self._progress is not None
        self._progress.grow(len(outcomes))
        self.failed |= {name: str(found.error) for name, found in outcomes.items() if found.status == "failed"}
        failed = sum(found.status == "failed" for found in outcomes.values())
        done = sum(found.status != "missing" for found in outcomes.values())
        self._progress.update(done, failed, running)

    def stop(self) -> None:
        """Ends the display."""
        if self._progress is not None:
            self._progress.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Omits the display: Tune pickles its callbacks, and a terminal cannot be pickled."""
        return {**vars(self), "_progress": None}

    def _next(self, stage: str, count: int) -> None:
        from fedbench.jobs.schedule import describe_cluster

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
