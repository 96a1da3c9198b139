"""What one page is about: the runs of a study by method, read once."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.errors import ConfigError
from fedbench.report.theme import colour_of
from fedbench.results.records import GridFolder, RunFolder, at_last_round, is_grid, summarise
from fedbench.results.tables import final_table

POINT_NAMES = {"after_fit": "after local training", "after_agg": "after aggregation", "global": "global model"}


@dataclass
class Study:
    """A run (one method) or a grid (the final runs of several methods, and the cells that were tried)."""

    folder: Path
    method: str
    runs: dict[str, RunFolder]
    grid: GridFolder | None = None

    @classmethod
    def load(cls, folder: Path) -> "Study":
        """Reads a folder. Raises ConfigError when it holds neither a grid nor a run."""
        if is_grid(folder):
            grid = GridFolder(folder)
            return cls(folder, str(grid.grid().get("method")), grid.final(), grid)
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; give the folder of a run or of a grid")
        run = RunFolder(folder)
        method = (run.config().get("method") or {}).get("name") or folder.name
        return cls(folder, method, {method: run})

    @cached_property
    def metrics(self) -> dict[str, pd.DataFrame]:
        frames = {method: run.metrics() for method, run in self.runs.items()}
        return {method: frame for method, frame in frames.items() if frame["test_accuracy"].notna().any()}

    @cached_property
    def clients(self) -> dict[str, pd.DataFrame]:
        return {method: self.runs[method].clients() for method in self.metrics}

    @cached_property
    def table(self) -> pd.DataFrame:
        return final_table(self.metrics, self.clients)

    @cached_property
    def traces(self) -> pd.DataFrame:
        """The own method's traces."""
        run = self.own
        return (
            run.traces().dropna(subset=["value"]) if run else pd.DataFrame(columns=["seed", "round", "client", "name"])
        )

    @cached_property
    def partition(self) -> dict[str, Any]:
        """The first partition that a run left; all runs of a study share it."""
        return next((found for run in self.runs.values() if (found := run.partition())), {})

    @cached_property
    def config(self) -> dict[str, Any]:
        """The own method's resolved configuration, or what the grid was asked."""
        found = self.own.config() if self.own else {}
        return found or (self.grid.grid().get("config") if self.grid else None) or {}

    @cached_property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """Per method: derived anew, with the warnings that the run itself left."""
        return {m: summarise(run, run.summary().get("warnings") or ()) for m, run in self.runs.items()}

    @property
    def own(self) -> RunFolder | None:
        return self.runs.get(self.method)

    @property
    def point(self) -> str:
        """The evaluation point that the answer is about."""
        return str(self.grid.grid().get("point") or "after_agg") if self.grid else "after_agg"

    @property
    def flipped(self) -> list[int]:
        """Clients with permuted labels."""
        return list((self.config.get("partition") or {}).get("flip_clients") or [])

    @property
    def colours(self) -> dict[str, str]:
        return colour_of(list(self.runs), self.method)

    @property
    def problems(self) -> list[str]:
        """What could not be read, each once; complete only after everything else was asked for."""
        named = [(run.path.name, problem) for run in self.runs.values() for problem in run.problems]
        own = [(self.folder.name, problem) for problem in (self.grid.problems if self.grid else [])]
        return list(dict.fromkeys(f"{name}/{problem}" for name, problem in [*named, *own]))

    def last(self, method: str, point: str | None = None) -> pd.DataFrame:
        """Per seed the metrics row of the last evaluated round at a point (default: the study's)."""
        frame = self.metrics[method]
        return at_last_round(frame[frame["point"] == (point or self.point)])
