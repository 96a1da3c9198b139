"""A job: one seed of one resolved configuration, run in a folder of its own and reused by later studies."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedbench.config import Config
from fedbench.data.prepared import PreparedDataset
from fedbench.jobs import provenance, run_names, run_state
from fedbench.results.files import read_json
from fedbench.results.plan import Entry, EntryRole, point_name
from fedbench.results.reader import Records

ERROR = "error.txt"
JOBS = "run"
"""The folder below a results folder that holds the jobs."""


@dataclass(frozen=True)
class Outcome:
    """error: why it failed, or after which round it stopped."""

    status: Literal["done", "failed", "stopped", "missing"]
    error: str | None = None


@dataclass(frozen=True)
class Job:
    """config: resolved, with one seed. label, values and setting: its name in a study, and what the study varied.

    study: the folder of its study. point: the evaluation point by which it is judged. code: fingerprint of the user's
    code to run it with, if another process may run it. shorter: folder of the same job with fewer rounds, from whose
    checkpoint a new one continues. pause: the round after whose evaluation it stops; the same job without it continues
    from there. shares_gpu: whether its share of a GPU is chosen when it starts. data: the data set as the command has
    prepared it, so that no trial reads the user's data again.
    """

    config: Config
    folder: Path
    label: str
    role: EntryRole = "final"
    values: dict[str, Any] = field(default_factory=dict)
    setting: str = ""
    study: Path | None = None
    point: str = "after_agg"
    code: str | None = None
    shorter: Path | None = None
    pause: int | None = None
    shares_gpu: bool = False
    data: PreparedDataset | None = None

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, config: Config, seed: int, root: Path, label: str = "", **more: Any) -> "Job":
        """The job of a resolved configuration and one of its seeds, in its folder below a results folder."""
        one_seed = config.model_copy(deep=True, update={"seeds": [seed], "name": None, "out": None})
        folder, code = run_names.folder_of(root / JOBS, one_seed), provenance.short_fingerprint(one_seed)
        return cls(one_seed, folder, label or config.method.name, code=code, **more)

    @property
    def seed(self) -> int:
        return self.config.seeds[0]

    @property
    def name(self) -> str:
        return f"{self.setting} {self.label} {point_name(self.values)} seed {self.seed}".lstrip()

    @property
    def title(self) -> str:
        """Its name, with the round after which it pauses: the job that continues it has the same name."""
        return self.name if self.pause is None else f"{self.name}, until round {self.pause}"

    @property
    def state(self) -> run_state.State:
        """The state of its folder. Raises ConfigError if the run in it cannot be continued."""
        state = run_state.state_of(self.folder, self.config)
        return "begun" if state == "new" and self.shorter else state

    @property
    def last(self) -> int:
        """The last round that it evaluates."""
        return self.pause or self.config.rounds

    def outcome(self) -> Outcome:
        """The outcome recorded in its folder; a job that pauses has stopped as soon as that round is evaluated."""
        if self.pause is not None and self._evaluated() >= self.pause:
            return Outcome("stopped", f"stopped after round {self.pause} of {self.config.rounds}")
        if (self.folder / "config.yaml").exists() and Records(self.folder).summary().get("complete"):
            return Outcome("done")
        error = self.folder / ERROR
        return Outcome("failed", error.read_text().strip()) if error.exists() else Outcome("missing")

    @property
    def seconds(self) -> float | None:
        """The seconds that its rounds took, if it is done."""
        a_round = read_json(self.folder / "summary.json", []).get("seconds_per_round")
        return None if a_round is None else float(a_round) * self.config.rounds

    def score_at_pause(self) -> float | None:
        """The validation score at its point in the round after which it pauses; None if it is not finite."""
        records = Records(self.folder)
        name, frame = f"val_{records.metric().name}", records.metrics()
        frame = frame[(frame["point"] == self.point) & (frame["round"] == self.pause)]
        return next(map(float, frame[name].dropna()), None)

    def _evaluated(self) -> int:
        """The last evaluated round so far; of half a line, which a killed command has left, nothing is known."""
        path = self.folder / "metrics.jsonl"
        for line in reversed(path.read_text().splitlines() if path.exists() else []):
            with suppress(ValueError):
                return int(json.loads(line)["round"])
        return 0

    def forget_failure(self) -> None:
        """Remove the record of its failure, before it is run again."""
        (self.folder / ERROR).unlink(missing_ok=True)

    def entry(self, study: Path) -> Entry:
        """Its entry in the plan of a study."""
        outcome, path = self.outcome(), run_names.relative_path(self.folder, study)
        scores = scores_of(self.folder, self.point) if outcome.status == "done" else {}
        code = provenance.fingerprint_in(read_json(self.folder / "environment.json", []))
        return Entry(self.role, self.label, self.values, self.seed, path, outcome.status, outcome.error, scores, code)


def scores_of(folder: Path, point: str) -> dict[str, float | None]:
    """The primary metric of a finished run after the last round, by split."""
    summary = Records(folder).summary()
    last = summary.get("points", {}).get(point, {}).get("last", {})
    return {split: last.get(f"{split}_{summary['metric']}", {}).get("mean") for split in ("val", "test")}
