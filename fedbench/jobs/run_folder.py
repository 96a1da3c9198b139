"""A run's folder: its path, and whether it may be used."""

import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedbench.checksums import CHANGED, changes, is_changed, is_text_changed, others_in, with_checksum
from fedbench.config import AggregatorConfig, Config
from fedbench.config.files import load_yaml
from fedbench.config.keys import flat
from fedbench.config.words import plural
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.jobs import provenance
from fedbench.jobs.description import file_fingerprints, fingerprinted_files
from fedbench.results.files import (
    PART_SUFFIX,
    UNREADABLE,
    damage_error,
    hold_file_lock,
    occupied_line,
    read_json,
    remove_half_written,
    write_atomically,
)
from fedbench.results.plan import Plan, is_study
from fedbench.results.reader import Records
from fedbench.results.settings_file import is_matrix
from fedbench.results.summary import damages_in
from fedbench.runtime import retries
from fedbench.runtime.drive import only_driver
from fedbench.runtime.kept.paths import MODELS_FOLDER
from fedbench.runtime.states import checkpoint

RESULTS = ("summary.json", "metrics.jsonl", "checkpoint")
"""Files that exist only if a run has begun, that is, if there is a config.yaml."""
LONGEST_NAME = 60
"""Maximum length of the part of a name that makes it unique."""
State = Literal["new", "begun", "done"]


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
    told = sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(told) - 1]}-{told}"


def folder_of(root: Path, config: Config) -> Path:
    """The folder of a run below a folder of runs, for the user's current code.

    With `keep_results`, if no run has this code, it is the newest finished run of the same configuration.
    """
    own = root / default_name(config)
    if not config.keep_results or _is_finished(own):
        return own
    return next(filter(_is_finished, earlier_runs(own, config)), own)


def earlier_runs(folder: Path, config: Config) -> list[Path]:
    """Runs of the same configuration with other user code, beside a folder, the newest first."""
    code = provenance.short_fingerprint(config)
    before, known, after = default_name(config).rpartition(f"-{code}-") if code else ("", "", "")
    if not known:
        return []
    names = re.compile(f"{re.escape(before)}(-[0-9a-f]{{{len(code)}}})?-{re.escape(after)}")
    found = [p for p in folder.parent.glob(f"{escape(before)}-*{escape(after)}") if names.fullmatch(p.name)]
    found = [p for p in found if p.name != folder.name and (p / "environment.json").exists()]
    return sorted(found, key=lambda path: (path / "environment.json").stat().st_mtime_ns, reverse=True)


def _is_finished(folder: Path) -> bool:
    return bool(read_json(folder / "summary.json", []).get("complete"))


def warn_about_changes(runs: Iterable[tuple[Path, Config]]) -> None:
    """Warn if the user's code has changed since runs were made. runs: folders with their configurations."""
    anew, taken = Counter[str](), Counter[str]()
    for folder, config in runs:
        if (folder / "config.yaml").exists():
            if since := _changes_since(folder, config):
                taken[since] += 1
        elif other := earlier_runs(folder, config):
            anew[_changes_since(other[0], config)] += 1
    say = logging.getLogger("fedbench").warning
    for since, count in anew.items():
        say("%s: run again (%s; earlier results stay, --keep-results uses them)", since, plural(count, "run"))
    for since, count in taken.items():
        say("%s: kept results are used all the same (%s; --keep-results)", since, plural(count, "run"))


def _changes_since(folder: Path, config: Config) -> str:
    """The changes of the user's code since a run was made, in words; empty if there are none."""
    files = provenance.changed_files(_kept_json(folder / "environment.json"), config)
    if files is None:
        names = ", ".join(provenance.user_names(config).values()) or config.data.name
        return f"no record says with which content of {names} kept results were made"
    return provenance.changed_since(files) if files else ""


def relative_path(folder: Path, start: Path) -> str:
    """The relative path from one folder to another, so that both can be moved together."""
    return os.path.relpath(folder.absolute(), start.absolute())


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Make a folder for a block. Raises ConfigError if it cannot be written to.

    Folders made for the block are removed after it if they are empty.
    """
    missing = [path for path in (folder.absolute(), *folder.absolute().parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}{PART_SUFFIX}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        _remove_empty(missing)
        if line := occupied_line(folder, error):
            raise ConfigError(f"{line}, or choose another folder with --out") from None
        raise ConfigError(
            f"out = {folder}: cannot be written to ({error.strerror}); choose another folder with --out"
        ) from None
    try:
        yield
    finally:
        _remove_empty(missing)


def _remove_empty(folders: list[Path]) -> None:
    """Remove empty folders; others stay, because other runs may have begun beside this one."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked_folder(folder: Path, patience: float | None = None) -> Iterator[None]:
    """Lock a folder, made if necessary, against other commands.

    Raises ConfigError if one keeps it locked for longer than `patience` seconds, by default `WAIT_FOR_COMMAND`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    patience = retries.WAIT_FOR_COMMAND if patience is None else patience
    with hold_file_lock(folder, patience, f"{folder}: another command is at work here"):
        remove_half_written(folder)
        yield


@contextmanager
def folder_in_turn(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Lock a folder against other commands; if one is at work there, say so and wait for its end."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_folder(folder, patience=0))
        except ConfigError:
            say(f"{folder}: another command is at work here; waiting for its end")
            stack.enter_context(locked_folder(folder, patience=inf))
        yield


def remove_leftovers(folder: Path, rounds: int) -> None:
    """Remove a killed command's leftovers in the folder of a finished run, unless another command is at work there."""
    if any(path.name == "checkpoint" or path.name.endswith(PART_SUFFIX) for path in folder.iterdir()):
        with suppress(ConfigError), locked_folder(folder, patience=0):
            checkpoint.remove_unless_last(folder / "checkpoint", rounds)


def refuse_other_results(folder: Path, command: str) -> None:
    """Raises ConfigError if a folder holds the results of another command, to which this one's would be added.

    command: `run`, `grid`, `compare`, or `compare --over`.
    """
    if is_matrix(folder):
        found = "compare --over"
    elif is_study(folder):
        found = Plan.read(folder).kind
    else:
        found = "run" if (folder / "config.yaml").exists() else command
    if found != command:
        raise ConfigError(f"out = {folder}: holds results of fedbench {found}, not of {command}; give another --out")


def state_of(folder: Path, config: Config) -> State:
    """The state of a run in a folder. Raises ConfigError if the folder holds another run or a damaged one.

    A run with fewer rounds that can continue counts as begun. A merged run counts as new if it has fewer rounds, or if
    the user's code has changed since.
    """
    if not (folder / "config.yaml").exists():
        left = next((name for name in RESULTS if (folder / name).exists()), None)
        if left and not is_study(folder):  # a merged run is merged again
            raise damage_error(folder / "config.yaml", f"missing, although {left} is there")
        return "new"
    shorter = shorter_run(folder, config)
    if not shorter and (changed := changed_keys(_kept_config(folder), config)):
        raise ConfigError(
            f"{folder} holds a run of another configuration ({', '.join(changed[:4])}): "
            "give the same values to continue it, or another --out"
        )
    check_description(folder, config.seeds)
    check_same_files(folder, config)
    if since := _changes_since(folder, config):
        if not config.keep_results and is_study(folder):
            return "new"
        if not config.keep_results or not _is_finished(folder):
            take = "give --keep-results to use it, or" if _is_finished(folder) else "give"
            raise ConfigError(f"{folder} holds a run of other code or data ({since}); {take} another --out")
    if shorter:
        if is_study(folder):
            return "new"
        check_longer(folder, shorter, config.rounds)
        return "begun"
    summary = folder / "summary.json"
    if not summary.exists() or not _kept_json(summary).get("complete"):
        return "begun"
    if not Records(folder).complete():
        raise damage_error(folder / "metrics.jsonl", "ends before the last round of a finished run")
    for name, why in damages_in(folder, _kept_json(summary)):
        raise damage_error(folder / name, why, folder)
    return "done"


def check_description(folder: Path, seeds: Sequence[int]) -> None:
    """Raises ConfigError if the description of a run is missing or damaged."""
    described = _kept_json(folder / "environment.json")
    prints = described.get("partition_fingerprint")
    arrays = folder / "partition.npz"  # if there are many clients
    dealt = arrays if arrays.exists() else folder / "partition.json"
    if not isinstance(prints, dict) or not {str(seed) for seed in seeds} <= prints.keys():
        raise damage_error(folder / "environment.json", "without the partition_fingerprint of every seed")
    for name, why in changes(folder, others_in(described, "environment.json")):
        raise damage_error(folder / name, why)
    if not {str(seed) for seed in seeds} <= set(_kept_arrays(dealt) if dealt == arrays else _kept_json(dealt)):
        raise damage_error(dealt, "without the partition of every seed")


def _kept_arrays(path: Path) -> set[str]:
    """The seeds of partition.npz, without reading the arrays. Raises ConfigError if it is damaged."""
    try:
        with np.load(path) as file:
            return {name.partition("/")[0] for name in file.files}
    except UNREADABLE:
        raise damage_error(path, "damaged") from None


def _kept_json(path: Path) -> dict[str, Any]:
    """The content of a run's JSON file. Raises ConfigError if it is missing or damaged."""
    try:
        value = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        raise damage_error(path, "missing or damaged") from None
    if is_changed(value, path.name):
        raise damage_error(path, CHANGED)
    return value


def _kept_config(folder: Path) -> Config:
    """The configuration of a run. Raises ConfigError if it cannot be read."""
    path = folder / "config.yaml"
    try:
        config = Config(**load_yaml(path))
    except (ConfigError, TypeError) as error:
        why = str(error).removeprefix(f"--config {path}: ")
        raise damage_error(path, f"{why}; damaged, or written by another version of fedbench") from None
    if is_text_changed(path.read_text()):
        raise damage_error(path, CHANGED)
    return config


def shorter_run(folder: Path, config: Config) -> Config | None:
    """The configuration of the run in a folder if it has fewer rounds and is the same otherwise."""
    if (folder / "config.yaml").exists():
        before = _kept_config(folder)
    elif is_study(folder) and (plan := Plan.read(folder)).kind == "run":  # of several seeds, not merged yet
        before = Config(**plan.config)
    else:
        return None
    same = not changed_keys(before.model_copy(update={"rounds": config.rounds}), config)
    return before if same and before.rounds < config.rounds else None


def check_longer(folder: Path, before: Config, rounds: int) -> bool:
    """Whether a run with fewer rounds has a checkpoint to continue from. Raises ConfigError if it cannot continue.

    Not if it has ended without a checkpoint: a new run in its folder would lose its results. Not if its results may
    depend on the number of rounds.
    """
    held = checkpoint.load(folder / "checkpoint")
    if held is None and _is_finished(folder):
        raise ConfigError(
            f"{folder} holds a finished run of {plural(before.rounds, 'round')} whose last state was not kept, so it "
            f"cannot continue to {rounds}: give another --out, with --checkpoint.keep if more rounds may follow"
        )
    if held is not None and held["uses_rounds"]:
        raise ConfigError(
            f"{folder} holds a run of {plural(before.rounds, 'round')} that cannot continue to {rounds}: "
            f"{before.method.name} (or the model's configure_optimizers) uses the number of rounds, so that earlier "
            "rounds would be others; give another --out"
        )
    return held is not None


def lengthen(folder: Path, config: Config) -> None:
    """Have the run in a folder end later: it is not finished any more."""
    with only_driver(folder / "config.yaml"):
        (folder / "summary.json").unlink(missing_ok=True)
        write_atomically(folder / "config.yaml", with_checksum(config.to_yaml()))


def copy_progress(source: Path, target: Path) -> None:
    """Have a described run continue from the checkpoint of the same one with fewer rounds, which stays as it is."""
    with locked_folder(source):
        for name in ("metrics.jsonl", "timings.jsonl"):
            if (source / name).exists():
                shutil.copy2(source / name, target / name)
        for name in (MODELS_FOLDER, "checkpoint"):
            files = [path for path in (source / name).rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: checkpoint.is_one(path.name)):  # after its shards
                own = target / path.relative_to(source)
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, own)


def check_same_partition(folder: Path, seed: int, now: Partition) -> None:
    """Raises ConfigError if a run began with other rows because a partition's file or the data have changed since."""
    known = _kept_json(folder / "environment.json").get("partition_fingerprint", {})
    if known.get(str(seed)) != now.fingerprint():
        raise ConfigError(
            f"{folder} holds a run that began with another partition (seed {seed}): the data set or the file of "
            "partition.path has changed since; bring it back, or give another --out"
        )


def check_same_files(folder: Path, config: Config) -> None:
    """Raises ConfigError if partition.path or model.weights has other content than when a run began."""
    named, found = fingerprinted_files(config), file_fingerprints(config)
    known = _kept_json(folder / "environment.json") if found else {}
    for key, now in found.items():
        if known.get(key, now) != now:
            what = {"weights_fingerprint": "other weights", "partition_file_fingerprint": "another partition"}[key]
            raise ConfigError(
                f"{folder} holds a run that began with {what}: {named[key]} has changed since; bring it back, or give "
                "another --out"
            )


def changed_keys(before: Config, now: Config) -> list[str]:
    """The differing keys that affect results, as `train.lr: 0.1 -> 0.2`."""
    old, new = ({**flat(c.decisive()), "seeds": c.seeds} for c in (before, now))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys]
