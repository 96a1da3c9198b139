"""Decoded once per machine: samples and targets as NumPy files that every process maps.

A data set lies in `$FEDBENCH_CACHE/decoded/NAME-KEY/` (default `~/.cache/fedbench`) as samples.npy, targets.npy, where
there are domains domains.npy, and meta.json. It is written beside its place and renamed when it is whole.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from fedbench.data.normalisation import MeanAndDeviation, constants_of
from fedbench.errors import ConfigError

OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

VERSION = 3
"""Goes up when the same source would be decoded to something else."""
FILES_NAMED = 20
"""So many files of a source are named in meta.json, which is read at every start."""


@dataclass(frozen=True)
class Block:
    """Some samples in a row, such as images uint8 [b, C, H, W]; targets [b, ...]; domains int64 [b] or None."""

    samples: np.ndarray
    targets: np.ndarray
    domains: np.ndarray | None = None


@dataclass(frozen=True)
class Content:
    """What a source holds. blocks: the training samples, then the test samples, each read once.

    classes: None where only the targets tell. mean, std: None where they are to be measured on the train part.
    """

    train: int
    test: int
    blocks: Iterable[Block]
    classes: int | None = None
    class_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    warnings: tuple[str, ...] = ()
    task: str = "classification"


@dataclass(frozen=True)
class Source:
    """Where a data set comes from. files and options: what decides the decoded content."""

    name: str
    read: Callable[[], Content]
    files: tuple[Path, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        """Twelve hexadecimal digits that change with the files' sizes and times and with the options."""
        stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in self.files]
        text = json.dumps([VERSION, self.name, stats, self.options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def root() -> Path:
    """The cache's folder."""
    return Path(os.environ.get("FEDBENCH_CACHE") or Path.home() / ".cache" / "fedbench").expanduser().absolute()


def size_on_disk(folder: Path) -> int:
    """Bytes on disk of a prepared data set."""
    return sum(path.stat().st_size for path in folder.iterdir())


def prepare(source: Source, progress: OnProgress | None = None) -> Path:
    """The folder with the decoded data set, made now if it is not there. Raises ConfigError.

    Of several processes that ask at once, one decodes and the others wait.
    """
    slug = re.sub(r"[^\w.-]+", "-", source.name).strip("-")[-60:]
    folder = root() / "decoded" / f"{slug}-{source.key()}"
    if not usable(folder):
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not usable(folder):
                build_folder(source, folder, progress)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes. Raises ConfigError where the cache cannot be written."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `folder` at the end, or vanishes after an exception."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed: whoever holds the lock is alone here
    try:
        part.mkdir(parents=True)
        yield part
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What goes wrong with the disk in this block is a ConfigError."""
    try:
        yield
    except OSError as error:
        needs = "make room, or set" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "set"
        raise ConfigError(
            f"cache {folder}: cannot be written ({error.strerror}); {needs} FEDBENCH_CACHE to another folder"
        ) from error


def build_folder(source: Source, folder: Path, progress: OnProgress | None) -> None:
    """Decode a source into its folder."""
    if progress is None:
        logging.getLogger("fedbench").info("decoding data %s", source.name)
    content = source.read()
    if not content.train or not content.test:
        raise ConfigError(
            f"data {source.name}: {content.train} training and {content.test} test samples; both are needed"
        )
    with writing(folder.parent), replacing(folder) as part:
        write(source, content, part, progress)


@dataclass
class Tally:
    """What is known of the samples written so far."""

    train: int
    shape: tuple[int, ...] = ()
    rows: int = 0
    constants: "MeanAndDeviation | None" = None
    targets: list[np.ndarray] = field(default_factory=list)
    domains: list[np.ndarray] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, block: Block, samples: np.ndarray) -> None:
        self.constants = self.constants or constants_of(samples)
        self.constants.add(samples[: max(0, self.train - self.rows)])
        self.digest.update(samples.data)
        self.targets.append(block.targets)
        if block.domains is not None:
            self.domains.append(block.domains)
        self.rows += len(samples)


def write(source: Source, content: Content, folder: Path, progress: OnProgress | None) -> None:
    """Samples first, as a stream; then targets, domains and what was learnt on the way."""
    tally, rows = Tally(content.train), content.train + content.test
    with (folder / "samples.npy").open("wb") as file:
        for block in content.blocks:
            if not tally.shape:
                tally.shape = (rows, *block.samples.shape[1:])
                write_header(file, block.samples.dtype, tally.shape)
            samples = np.ascontiguousarray(block.samples)
            tally.add(block, samples)
            file.write(samples.data)
            if progress:
                progress(f"decoding {source.name}", tally.rows, rows)
        synced(file)
    if tally.rows != rows:
        raise ConfigError(f"data {source.name}: {tally.rows} samples were read where {rows} were announced")
    kind = np.int64 if content.task == "classification" else np.float32
    targets = np.concatenate(tally.targets).astype(kind)
    save(folder / "targets.npy", targets)
    if tally.domains:
        save(folder / "domains.npy", np.concatenate(tally.domains).astype(np.int64))
    with (folder / "meta.json").open("w") as text:
        json.dump(describe_cache(source, content, tally, targets), text, indent=1)
        synced(text)


def write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    # Written as a stream, not into a mapped file: a full disk is then an OSError, not a signal that kills the process.
    described = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": described, "fortran_order": False, "shape": shape})


def synced(file: Any) -> None:
    """On the disk before the folder is renamed, so that a power cut leaves no whole-looking folder with holes."""
    file.flush()
    os.fsync(file.fileno())


def save(path: Path, values: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, values)
        synced(file)


def describe_cache(source: Source, content: Content, tally: Tally, targets: np.ndarray) -> dict[str, Any]:
    """What meta.json says."""
    mean, std = tally.constants.mean_and_std() if tally.constants else ([], [])
    for values in (targets, *(own.astype(np.int64) for own in tally.domains)):
        tally.digest.update(values.tobytes())
    classes = content.classes or int(targets.max()) + 1 if content.task == "classification" else 0
    return {
        "version": VERSION,
        "name": source.name,
        "shape": tally.shape,
        "task": content.task,
        "classes": classes,
        "class_names": content.class_names,
        "domain_names": content.domain_names,
        "train_rows": content.train,
        "mean": content.mean or mean,
        "std": content.std or std,
        "warnings": content.warnings,
        "files": [str(path) for path in source.files[:FILES_NAMED]],
        "file_count": len(source.files),
        "options": {key: str(value) for key, value in source.options.items()},
        "sha256": tally.digest.hexdigest(),
    }


def usable(folder: Path) -> bool:
    try:
        read(folder)
    except ConfigError:
        return False
    return True


def digest_of(folder: Path) -> str:
    """What was written of samples, targets and domains, as a hash."""
    return str(json.loads((folder / "meta.json").read_text())["sha256"])


def read(folder: Path) -> dict[str, Any]:
    """The fields of a Dataset from its folder. Raises ConfigError."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        samples = np.load(folder / "samples.npy", mmap_mode=mapping(folder / "samples.npy"))
        targets = np.load(folder / "targets.npy")
        domains = np.load(folder / "domains.npy") if (folder / "domains.npy").exists() else None
        if list(samples.shape) != meta["shape"] or len(targets) != len(samples):
            raise ValueError(f"{len(samples)} samples, {len(targets)} targets")
        if bool(meta["domain_names"]) != (domains is not None) or (
            domains is not None and len(domains) != len(targets)
        ):
            raise ValueError("the domains do not fit")
        names = {key: tuple(meta[key]) for key in ("class_names", "domain_names", "mean", "std", "warnings")}
        fixed = {key: meta[key] for key in ("name", "task", "classes", "train_rows")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: not a whole prepared data set ({error}); delete it and start again") from error
    return {"samples": samples, "targets": targets, "domains": domains, **names, **fixed}


def mapping(path: Path) -> Literal["c", "r"]:
    """Copy-on-write, because torch warns about read-only arrays; nobody writes, so all processes share the pages.

    Read-only for files that the memory could not hold if somebody did write: the system refuses to map them otherwise.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "c" if path.stat().st_size < memory // 4 else "r"


def intact(folder: Path) -> bool:
    """Whether samples, targets and domains are still those that were written."""
    fields = read(folder)
    digest = hashlib.sha256()
    for start in range(0, len(fields["samples"]), 1000):
        digest.update(np.ascontiguousarray(fields["samples"][start : start + 1000]).data)
    digest.update(fields["targets"].tobytes())
    if fields["domains"] is not None:
        digest.update(fields["domains"].tobytes())
    return digest.hexdigest() == digest_of(folder)
