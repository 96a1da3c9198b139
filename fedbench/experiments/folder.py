"""A run's folder: where it is, whether it may be used, and what describes the run in it."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedbench import processor
from fedbench.config import Config, flat, load_yaml
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.results.records import RunFolder, write_atomically, write_json_atomically
from fedbench.runtime.cluster import COMMAND

DESCRIPTION = ("config.yaml", "environment.json", "partition.json")
PATIENCE = 10.0
"""Seconds for the processes of a command that was killed to end."""
LIBRARIES = ["fedbench", "torch", "torchvision", "lightning", "ray", "wandb", "numpy", "pandas"]


@dataclass(frozen=True)
class RunPlace:
    """A folder for a run. done: it holds the finished run; begun: an unfinished one to go on with.

    made: the folders that did not exist before, the innermost first.
    """

    folder: Path
    done: bool
    begun: bool
    made: tuple[Path, ...] = ()


def default_name(config: Config) -> str:
    """What tells runs apart at a glance, then what tells them apart for sure."""
    words = [config.method.name, config.data.name, config.partition.name]
    text = "-".join(word.rpartition("/")[2].replace(":", "-") for word in words)
    return f"{text}-{identity(config)}"


def identity(config: Config) -> str:
    """Names what was asked, seeds included."""
    return f"{config.key()}-s{'_'.join(map(str, config.seeds))}"[:60]


def take(config: Config, experiment: str, resume: bool) -> RunPlace:
    """The folder of a resolved configuration, made if need be. Raises ConfigError where it cannot be used."""
    folder = config.out or Path("results") / experiment / (config.name or default_name(config))
    made = _made(folder)
    with nothing_left(RunPlace(folder, done=False, begun=(folder / "config.yaml").exists(), made=made)):
        return _state_of(folder, config, resume, made)


def check_writable(folder: Path) -> None:
    """Raises ConfigError where no file can be written in a folder, or where it cannot be made; leaves nothing."""
    _remove_empty(_made(folder))


def _made(folder: Path) -> tuple[Path, ...]:
    """Make the folder and those above it, as far as they are missing: the ones made, the innermost first."""
    made = tuple(path for path in (folder.absolute(), *folder.absolute().parents) if not path.exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"out = {folder}: cannot be written to ({error.strerror}); choose another folder with --out"
        ) from None
    return made


def _remove_empty(folders: Iterable[Path]) -> None:
    """Other runs may have begun beside this one: what holds anything stays."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def alone_in(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Keep other commands out of a folder, which is made if need be.

    Raises ConfigError where one stays in it for longer than `patience` s. The lock is on the folder itself: it leaves
    no file, and ends with its process however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"{folder}: another command is at work here; wait until it ends, or give another --out"
                    ) from None
                time.sleep(0.2)
            except OSError:  # a file system that has no locks
                break
        yield
    finally:
        os.close(handle)


@contextmanager
def nothing_left(place: RunPlace) -> Iterator[None]:
    """A run that is refused in this block before it has a number leaves no folder and no file that it made."""
    try:
        yield
    except ConfigError:
        metrics = place.folder / "metrics.jsonl"
        if not place.begun and not (metrics.exists() and metrics.stat().st_size):
            _clear(place)
        raise


def _clear(place: RunPlace) -> None:
    if not place.made:
        for name in DESCRIPTION:
            (place.folder / name).unlink(missing_ok=True)
        return
    shutil.rmtree(place.folder, ignore_errors=True)
    _remove_empty(place.made)


def _state_of(folder: Path, config: Config, resume: bool, made: tuple[Path, ...]) -> RunPlace:
    if not (folder / "config.yaml").exists():
        if resume:
            raise ConfigError(f"--resume: {folder} holds no run to go on with; leave --resume out to start one")
        return RunPlace(folder, done=False, begun=False, made=made)
    check_same(folder, config)
    done = _is_done(folder)
    return RunPlace(folder, done=done, begun=not done)


def _is_done(folder: Path) -> bool:
    """Whether the run in a folder is over. Raises ConfigError where it was and its records are not whole any more."""
    summary = folder / "summary.json"
    if not summary.exists() or not _kept_json(summary).get("complete"):
        return False
    if not RunFolder(folder).complete():
        raise _damaged(folder / "metrics.jsonl", "ends before the last round of a run that was finished")
    return True


def _kept_json(path: Path) -> dict[str, Any]:
    """A file of a run. Raises ConfigError where it is missing or damaged."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        raise _damaged(path, "missing or damaged") from None


def _kept_config(path: Path) -> Config:
    """The configuration of a run. Raises ConfigError where it cannot be read."""
    try:
        return Config(**load_yaml(path))
    except (ConfigError, TypeError) as error:
        raise _damaged(path, str(error).removeprefix(f"--config {path}: ")) from None


def _damaged(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"{path}: {what}; bring the file back, delete {path.parent} to run it anew, or give another --out"
    )


def check_same(folder: Path, config: Config) -> None:
    """Raises ConfigError where a folder holds a run of another configuration."""
    changed = changes_in(folder, config)
    if changed:
        raise ConfigError(
            f"{folder} holds a run of another configuration ({', '.join(changed[:4])}): "
            "give the same values to go on with it, or another --out"
        )


def check_same_partitions(folder: Path, partitions: dict[int, Partition]) -> None:
    """Raises ConfigError where a run began with other rows: a partition's file or the data have changed since."""
    known = _kept_json(folder / "environment.json").get("partition_fingerprint", {})
    for seed, now in partitions.items():
        if known.get(str(seed)) != now.fingerprint():
            raise ConfigError(
                f"{folder} holds a run that began with another partition (seed {seed}): the data set or the file of "
                "partition.path has changed since; bring it back, or give another --out"
            )


def changes_in(folder: Path, config: Config) -> list[str]:
    """What differs between the run in a folder, if there is one, and a resolved configuration."""
    kept = folder / "config.yaml"
    return changes(_kept_config(kept), config) if kept.exists() else []


def changes(before: Config, now: Config) -> list[str]:
    """The keys that decide the numbers and differ, as `train.lr: 0.1 -> 0.2`."""
    old, new = ({**flat(c.decisive()), "seeds": c.seeds} for c in (before, now))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys]


def describe(folder: Path, config: Config, dataset: Dataset, partitions: dict[int, Partition]) -> None:
    """Write environment.json, partition.json and, last, config.yaml, which says that the run has begun."""
    prints = {str(seed): part.fingerprint() for seed, part in partitions.items()}
    write_json_atomically(folder / "environment.json", environment(prints))
    write_atomically(folder / "partition.json", json.dumps(_drawn(dataset, partitions)))
    write_atomically(folder / "config.yaml", config.to_yaml())


def environment(fingerprints: dict[str, str]) -> dict[str, Any]:
    """Versions, machine, state of the code, partitions and the time of the start."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
        "machine": {"system": platform.platform(), "processor": processor.name(), "cores": os.cpu_count()},
        "git": _git(),
        "command": _command(),
        "partition_fingerprint": fingerprints,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "finished": None,
    }


def _command() -> str | None:
    """What the user typed. A worker of Ray was started by another line, and on another machine nobody tells it."""
    in_worker = Path(sys.argv[0]).name == "default_worker.py"
    return os.environ.get(COMMAND) if in_worker else " ".join(sys.argv)


def finish(folder: Path) -> None:
    """Note the time of the end."""
    path = folder / "environment.json"
    known = json.loads(path.read_text())
    write_json_atomically(path, {**known, "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z")})


def _drawn(dataset: Dataset, partitions: dict[int, Partition]) -> dict[str, Any]:
    return {
        str(seed): {
            **drawn.tree(),
            "class_counts": drawn.class_counts(dataset.labels, dataset.num_classes).tolist(),
        }
        for seed, drawn in partitions.items()
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    ask = lambda *words: subprocess.run(["git", *words], capture_output=True, text=True, timeout=10)  # noqa: E731
    try:
        commit = ask("rev-parse", "HEAD")
        if commit.returncode:
            return None
        return {"commit": commit.stdout.strip(), "dirty": bool(ask("status", "--porcelain").stdout.strip())}
    except (OSError, subprocess.SubprocessError):
        return None
