"""A job: one seed of one configuration, which is what is run, kept and taken by later studies."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedbench.config import Config
from fedbench.results.plan import Entry, EntryRole, point_name
from fedbench.results.reader import Records
from fedbench.studies import folder as places

ERROR = "error.txt"
KEPT = "run"
"""The folder of a results folder in which jobs lie by their identity."""


@dataclass(frozen=True)
class Outcome:
    """status: done, failed or missing; error: why it failed."""

    status: Literal["done", "failed", "missing"]
    error: str | None = None


@dataclass(frozen=True)
class Job:
    """config: resolved, with one seed. label, values and setting: what a study calls it, and what it varied in it."""

    config: Config
    folder: Path
    label: str
    role: EntryRole = "final"
    values: dict[str, Any] = field(default_factory=dict)
    setting: str = ""

    @classmethod
    def kept(cls, config: Config, seed: int, root: Path, label: str = "", **more: Any) -> "Job":
        """The job of a resolved configuration, in its place below a results folder."""
        own = config.model_copy(deep=True, update={"seeds": [seed], "name": None, "out": None})
        return cls(own, root / KEPT / places.default_name(own), label or config.method.name, **more)

    @property
    def seed(self) -> int:
        return self.config.seeds[0]

    @property
    def name(self) -> str:
        return f"{self.setting} {self.label} {point_name(self.values)} seed {self.seed}".lstrip()

    @property
    def done(self) -> bool:
        """Whether its folder holds the finished run. Raises ConfigError where it holds what cannot be gone on with."""
        return places.state_of(self.folder, self.config) == "done"

    def outcome(self) -> Outcome:
        """What its folder says of it."""
        if (self.folder / "config.yaml").exists() and Records(self.folder).summary().get("complete"):
            return Outcome("done")
        error = self.folder / ERROR
        return Outcome("failed", error.read_text().strip()) if error.exists() else Outcome("missing")

    def entry(self, study: Path, point: str = "after_agg") -> Entry:
        """As a plan in the folder of a study says it."""
        found, path = self.outcome(), places.relative(self.folder, study)
        scores = scores_of(self.folder, point) if found.status == "done" else {}
        return Entry(self.role, self.label, self.values, self.seed, path, found.status, found.error, scores)


def scores_of(folder: Path, point: str) -> dict[str, float | None]:
    """The primary metric of a finished run after the last round, by split."""
    summary = Records(folder).summary()
    last = summary.get("points", {}).get(point, {}).get("last", {})
    return {split: last.get(f"{split}_{summary['metric']}", {}).get("mean") for split in ("val", "test")}
