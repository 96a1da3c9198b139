"""plan.json: what a study consists of, and what has become of it."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedbench.errors import ConfigError
from fedbench.results.files import read_json, write_json_atomically
from fedbench.results.reader import Records, is_run

EntryRole = Literal["candidate", "final"]
FILE = "plan.json"


@dataclass(frozen=True)
class Entry:
    """A job: one seed of one configuration.

    role: candidate of a choice, or final, which tables and figures show. label: what they call it. values: what tells a
    candidate from the others of its label, by dotted key. path: of its folder, relative to the plan's. status: done,
    failed or missing. scores: the primary metric after the last round at the plan's point, by split.
    """

    role: EntryRole
    label: str
    values: dict[str, Any]
    seed: int
    path: str
    status: str = "missing"
    error: str | None = None
    scores: dict[str, float | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of a candidate among those of its label."""
        return point_name(self.values)


@dataclass
class Plan:
    """A study. kind: what command made it; subject: the label that it is about.

    config: what was asked, as a tree. space: tried values by dotted key; choices: the chosen ones by label. split and
    point: what a choice goes by, and what the answer is about.
    """

    kind: str
    subject: str
    config: dict[str, Any]
    entries: list[Entry]
    space: dict[str, list[Any]] = field(default_factory=dict)
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    split: str = "val"
    point: str = "after_agg"

    @classmethod
    def read(cls, folder: Path, problems: list[str]) -> "Plan":
        """The plan of a study, or that of a single run's folder. Raises ConfigError where there is neither."""
        tree = read_json(folder / FILE, problems)
        if tree:
            return cls(**{**tree, "entries": [Entry(**entry) for entry in tree["entries"]]})
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; give the folder of a run or of a study")
        config = Records(folder).config()
        label = (config.get("method") or {}).get("name") or folder.name
        entries = [Entry("final", label, {}, seed, ".") for seed in (config.get("seeds") or [0])[:1]]
        return cls("run", label, config, entries)

    def write(self, folder: Path) -> None:
        write_json_atomically(folder / FILE, asdict(self))

    def labels(self) -> list[str]:
        """Those of final jobs, the subject first."""
        found = dict.fromkeys(entry.label for entry in self.entries if entry.role == "final")
        return sorted(found, key=lambda label: label != self.subject)

    def records(self, folder: Path) -> dict[str, Records]:
        """What the final jobs left, by label; those that never began are left out."""
        found = {}
        for label in self.labels():
            paths = [folder / entry.path for entry in self.final(label)]
            if begun := [path for path in paths if is_run(path)]:
                found[label] = Records(*begun)
        return found

    def final(self, label: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.role == "final" and entry.label == label]

    def candidates(self) -> list[Entry]:
        """The points that were tried for the subject."""
        return [entry for entry in self.entries if entry.role == "candidate" and entry.label == self.subject]

    def failed(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.status == "failed"]


def is_study(folder: Path) -> bool:
    """Whether the folder holds a study."""
    return (folder / FILE).exists()


def point_name(values: dict[str, Any]) -> str:
    """`{"method.tau": 0.3, "train.lr": 0.1}` -> `tau=0.3,lr=0.1`."""
    return ",".join(f"{key.rpartition('.')[2]}={text_of(value)}" for key, value in values.items()) or "default"


def text_of(value: Any) -> str:
    """A value in a name."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
