"""The names of runs, which identify them, and the folders with these names."""

import os
import re
from glob import escape
from hashlib import sha256
from pathlib import Path

from fedbench.config import AggregatorConfig, Config
from fedbench.config.keys import flat
from fedbench.jobs import provenance
from fedbench.results.files import read_json

LONGEST_NAME = 60
"""Maximum length of the part of a name that makes it unique."""


def default_name(config: Config) -> str:
    """A name from method, data and partition, then the identity, which is unique."""
    words = [config.method.name, config.data.name, config.partition.name]
    words += [config.aggregator.name] if config.aggregator.name != AggregatorConfig().name else []
    text = "-".join(re.sub(r"[:<>]+", "-", word.rpartition("/")[2]) for word in words)
    return f"{text}-{identity(config)}"


def identity(config: Config) -> str:
    """Identifies the configuration, the user's code and the seeds; a long name is cut and ends with a hash."""
    seeds = f"s{'_'.join(map(str, config.seeds))}"
    name = "-".join(filter(None, [config.key(), provenance.short_fingerprint(config), seeds]))
    if len(name) <= LONGEST_NAME:
        return name
    digits = sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(digits) - 1]}-{digits}"


def changed_keys(before: Config, now: Config) -> list[str]:
    """The differing keys that affect results, as `train.lr: 0.1 -> 0.2`."""
    old, new = ({**flat(c.decisive()), "seeds": c.seeds} for c in (before, now))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys]


def folder_of(root: Path, config: Config) -> Path:
    """The folder of a run below a folder of runs, for the user's current code.

    With `keep_results`, if no run has this code, it is the newest finished run of the same configuration.
    """
    folder = root / default_name(config)
    if not config.keep_results or is_finished(folder):
        return folder
    return next(filter(is_finished, earlier_runs(folder, config)), folder)


def earlier_runs(folder: Path, config: Config) -> list[Path]:
    """Runs of the same configuration with other user code, beside a folder, the newest first."""
    code = provenance.short_fingerprint(config)
    before, dash, after = default_name(config).rpartition(f"-{code}-") if code else ("", "", "")
    if not dash:
        return []
    names = re.compile(f"{re.escape(before)}(-[0-9a-f]{{{len(code)}}})?-{re.escape(after)}")
    runs = [p for p in folder.parent.glob(f"{escape(before)}-*{escape(after)}") if names.fullmatch(p.name)]
    runs = [p for p in runs if p.name != folder.name and (p / "environment.json").exists()]
    return sorted(runs, key=lambda path: (path / "environment.json").stat().st_mtime_ns, reverse=True)


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder has ended."""
    return bool(read_json(folder / "summary.json", []).get("complete"))


def relative_path(folder: Path, start: Path) -> str:
    """The relative path from one folder to another, so that both can be moved together."""
    return os.path.relpath(folder.absolute(), start.absolute())
