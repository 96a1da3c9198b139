"""plan.json: the jobs of a study and their status."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.results.files import read_as, write_json_atomically
from fedbench.results.reader import Records, is_run
from fedbench.results.run_files import config_faults
from fedbench.results.schema import POINTS

EntryRole = Literal["candidate", "final"]
PLAN_FILE = "plan.json"
MOST_NAMED = 5
"""Repeated trials that are named."""
STUDY_PARTS = ("settings", "cells")
"""Folders of a study with studies that are its parts."""


@dataclass(frozen=True)
class Entry:
    """A job: one seed of one configuration.

    role: candidate of a choice, or final, which tables and figures show. label: its name in them. values: what
    distinguishes a candidate from others of its label, by dotted key. path: of its folder, relative to the plan's.
    status: done, failed, stopped (early) or missing; error: why it failed, or after which round it was
    stopped. scores: the primary metric after the last round at the plan's point, by split. code: identifies the user's
    code, if any.
    """

    role: EntryRole
    label: str
    values: dict[str, Any]
    seed: int
    path: str
    status: str = "missing"
    error: str | None = None
    scores: dict[str, float | None] = field(default_factory=dict)
    code: str = ""

    @property
    def name(self) -> str:
        """The name of a candidate within its label."""
        return point_name(self.values)


@dataclass
class Plan:
    """A study. kind: the command; subject: the label that it is about; none: it has no subject.

    config: the configuration, as a tree. spaces: candidate values by label and dotted key; choices: the chosen ones;
    ends: the keys whose chosen value is the lowest or highest of them, or of the space that they are part of, although
    a value past it is legal: a better one may lie there. untried: further keys whose values beside the chosen one were
    not all tried with the others of the point. beside_best: how many points beside chosen ones were tried in addition
    to the budget, by label. tuning_doubts: sentences on why the chosen points may not be the best. point: the
    evaluation point of choices and of the answer. search: how points were found. tune_rounds: whether the worse half of
    points stops early (halving) or all run to the end (full); rounds_saved: rounds of tuning that were not run, and of
    how many. budgets: points by label, where they count as equal although numbers differ. by_steps: whether budgets
    are equal in gradient steps, as asked. refused: invalid points, as `[label, point, why]`. stopping_rule: if seeds
    are added until the comparison is decided, its margin, in the unit that is shown, and the maximum number of seeds.
    gpus: how trials share GPUs, in a sentence. gpu_full: by trial, the GPUs that it had each time, if their memory was
    too small at first. references: the labels of methods that train on the pooled data of all clients: they are shown
    and do not compete.
    """

    kind: str
    subject: str | None
    config: dict[str, Any]
    entries: list[Entry]
    spaces: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: dict[str, list[str]] = field(default_factory=dict)
    untried: dict[str, list[str]] = field(default_factory=dict)
    beside_best: dict[str, int] = field(default_factory=dict)
    tuning_doubts: list[str] = field(default_factory=list)
    point: str = "after_agg"
    search: str = "grid"
    tune_rounds: str = "full"
    rounds_saved: tuple[int, int] = (0, 0)
    budgets: dict[str, int] = field(default_factory=dict)
    refused: list[list[str]] = field(default_factory=list)
    stopping_rule: dict[str, float] | None = None
    gpus: str = ""
    gpu_full: dict[str, list[float]] = field(default_factory=dict)
    by_steps: bool = False
    references: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """Reads the plan of a study, or of a single run's folder.

        Raises ConfigError if there is neither, or if the plan is damaged.
        """
        if is_study(folder):
            plan = read_as(cls, folder / PLAN_FILE, cls.faults)
            plan.references = plan.references or plan._pooled(folder)
            return plan
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; give the folder of a run or of a study")
        config = Records(folder).config()
        label = (config.get("method") or {}).get("name") or folder.name
        entries = [Entry("final", label, {}, seed, ".") for seed in (config.get("seeds") or [0])[:1]]
        plan = cls("run", label, config, entries)
        plan.references = plan._pooled(folder)
        return plan

    def _pooled(self, folder: Path) -> list[str]:
        """The methods whose final runs say that they train on pooled data: a plan may lack the note."""
        return [label for label, run in self.records(folder).items() if run.is_pooled]

    def write(self, folder: Path) -> None:
        write_json_atomically(folder / PLAN_FILE, asdict(self), own_checksum=True)

    def faults(self) -> Iterator[str]:
        """Mistakes in a plan that was written by hand, which a report could not make sense of."""
        yield from config_faults(self.config)
        if self.point not in POINTS:
            yield f"point: {self.point}; one of {', '.join(POINTS)} is legal"
        if self.subject is not None and self.entries and self.subject not in {entry.label for entry in self.entries}:
            yield f"subject: no entry has the label {self.subject}"
        if any(len(refusal) != 3 for refusal in self.refused):
            yield "refused: a label, a point and a reason are expected"
        if self.stopping_rule is not None and not {"margin", "most"} <= self.stopping_rule.keys():
            yield "stopping_rule: margin and most are expected"
        for label, chosen in self.choices.items():
            if lacks := [key for key in self.open_keys(label) if key not in chosen]:
                yield f"choices: that of {label} lacks {lacks[0]}"

    def labels(self) -> list[str]:
        """The labels of final jobs, the subject first."""
        labels = dict.fromkeys(entry.label for entry in self.entries if entry.role == "final")
        return sorted(labels, key=lambda label: label != self.subject)

    def records(self, folder: Path, only_done: bool = False) -> dict[str, Records]:
        """The records of final jobs by label; omits those that failed or never began, or all that are not done."""
        known = ("done",) if only_done else ("done", "stopped", "missing")
        records = {}
        for label in self.labels():
            paths = [folder / entry.path for entry in self.final(label) if entry.status in known]
            if begun := [path for path in dict.fromkeys(paths) if is_run(path)]:
                records[label] = Records(*begun)
        return records

    def final(self, label: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.role == "final" and entry.label == label]

    def points(self, label: str | None = None) -> list[Entry]:
        """The candidate points of a label, by default the subject, each once.

        Their scores are means over the seeds on which they were tried; a point that lacks one of these has none.
        """
        return [_merge_seeds(seeds) for seeds in self._candidates(self.subject if label is None else label)]

    def finalists(self, label: str) -> list[Entry]:
        """The points of a label that have a score and were tried on the most seeds: from these one is chosen."""
        merged = [(len(seeds), _merge_seeds(seeds)) for seeds in self._candidates(label)]
        known = [(count, point) for count, point in merged if point.scores.get("val") is not None]
        return [point for count, point in known if count == max(other for other, _ in known)]

    @property
    def drops_points_early(self) -> bool:
        """Whether some points were left behind after a tuning seed."""
        return any(len({len(seeds) for seeds in self._candidates(label)}) > 1 for label in self.spaces)

    def _candidates(self, label: str | None) -> list[list[Entry]]:
        """The candidates of a label, by point."""
        by_name: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if (entry.role, entry.label) == ("candidate", label):
                by_name.setdefault(entry.name, []).append(entry)
        return list(by_name.values())

    def as_good(self, label: str) -> list[str]:
        """The names of points whose validation score equals that of the chosen one, which was the first of them."""
        chosen = self.choices.get(label)
        scores = {entry.name: entry.scores.get("val") for entry in self.finalists(label)}
        best = scores.pop(point_name(chosen), None) if chosen else None
        return [name for name, score in scores.items() if score is not None and score == best]

    def budget(self, label: str) -> int:
        """The number of candidate points of a label, without those that were tried beside its best one."""
        return max(1, len(self.points(label)) - self.beside_best.get(label, 0))

    def open_keys(self, label: str) -> list[str]:
        """The keys along which a label's best point is not known to be better than its neighbours on both sides.

        Such a method may have a better point, so it is not called worse than another one.
        """
        return [*self.ends.get(label, ()), *self.untried.get(label, ())]

    def even(self, *labels: str) -> bool:
        """Whether these labels were tuned with equal budgets."""
        if self.budgets:
            return all(self.budget(label) >= self.budgets.get(label, 1) for label in labels)
        return len({self.budget(label) for label in labels}) <= 1

    def left_out(self) -> list[str]:
        """A line for each invalid point, with the reason; of a method that has many, the first ones and a count."""
        lines = list[str]()
        for label in dict.fromkeys(label for label, _, _ in self.refused):
            refusals = [f"{label} {point}: {why}" for named, point, why in self.refused if named == label]
            lines += refusals[:MOST_NAMED]
            if len(refusals) > MOST_NAMED:
                lines.append(f"{label}: {plural(len(refusals) - MOST_NAMED, 'more invalid candidate')}")
        return lines

    def gpu_notes(self) -> list[str]:
        """A sentence on trials that were repeated because their share of a GPU was too small, if there are any."""
        if not self.gpu_full:
            return []
        tries = [f"{name} ({', then '.join(f'{gpus:.3g}' for gpus in had)})" for name, had in self.gpu_full.items()]
        what = f"{plural(len(tries), 'trial')} ran out of GPU memory and went on with a larger share of a GPU"
        more = f" and {len(tries) - MOST_NAMED} more" if len(tries) > MOST_NAMED else ""
        return [f"{what}: {', '.join(tries[:MOST_NAMED])}{more}."]

    def saved_note(self) -> str:
        """What tuning has saved by points that stopped early, as a sentence; empty if none did, or some may go on."""
        stopped = self.stopped()
        if not stopped or not self.choices:
            return ""
        saved, of = self.rounds_saved
        rounds = f": {saved:,} of {of:,} rounds of tuning were not run" if of else ""
        tried = sum(entry.role == "candidate" for entry in self.entries)
        return f"{len(stopped)} of {tried} trials stopped early, the worse half of their method's candidates{rounds}."

    def failed(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.status == "failed"]

    def stopped(self) -> list[Entry]:
        """Trials that were ended early, which are never chosen."""
        return [entry for entry in self.entries if entry.status == "stopped"]


def _merge_seeds(seeds: list[Entry]) -> Entry:
    first = next((entry for entry in seeds if entry.status != "done"), seeds[0])
    means: dict[str, float | None] = {}
    for split in seeds[0].scores:
        known = [score for entry in seeds if (score := entry.scores.get(split)) is not None]
        means[split] = fmean(known) if len(known) == len(seeds) else None
    return replace(first, scores=means if first.status == "done" else {})


def is_study(folder: Path) -> bool:
    """Whether the folder holds a study."""
    return (folder / PLAN_FILE).exists()


def study_name(folder: Path) -> str:
    """The name of a study elsewhere: its folder's name, after that of the study that contains it."""
    path = folder.absolute()
    return f"{path.parents[1].name}/{path.name}" if path.parent.name in STUDY_PARTS else path.name


def studies_in(folder: Path) -> list[Path]:
    """The folder itself if it holds a study or a run, else the studies below it. Raises ConfigError for neither."""
    if is_study(folder) or is_run(folder):
        return [folder]
    folders = sorted(path.parent for path in folder.rglob(PLAN_FILE))
    if not folders:
        raise ConfigError(f"{folder}: no study or run here; give the folder of a run, a grid or a comparison")
    return folders


def point_name(values: dict[str, Any]) -> str:
    """`{"method.tau": 0.3, "train.lr": 0.1}` -> `tau=0.3,lr=0.1`."""
    return ",".join(f"{key_name(key)}={text_of(value)}" for key, value in values.items()) or "default"


def key_name(key: str) -> str:
    """`partition.alpha` -> `alpha`; `data` and `data.name` -> `data`; `attack.share` stays: there are other shares."""
    section, _, name = key.removesuffix(".name").rpartition(".")
    return f"{section}.{name}" if name == "share" and section != "method" else name


def text_of(value: Any) -> str:
    """A value as part of a name; of a dict `(alpha=0.1,clients=20)`, or its name alone."""
    if isinstance(value, dict):
        return str(value["name"]) if [*value] == ["name"] else f"({point_name(value)})"
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def is_number(value: Any) -> bool:
    """Whether the value of a key is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
