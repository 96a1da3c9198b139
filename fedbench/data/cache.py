"""The cache of decoded data sets: NumPy files, written once per machine and mapped by every process.

A data set is stored in `$FEDBENCH_CACHE/decoded/NAME-KEY/` (default `~/.cache/fedbench`) as samples.npy, targets.npy,
domains.npy, groups.npy and order.npy if there are any, and meta.json with their checksums. It is written to a
temporary folder, which is then renamed. Processes that open it compare the checksums.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock

from fedbench.checksums import CHANGED, changes, is_changed, others_in
from fedbench.data.description import Decision
from fedbench.data.fields import Fields
from fedbench.data.normalisation import Channels
from fedbench.data.raw_columns import RawColumn, feature_names
from fedbench.errors import ConfigError
from fedbench.tasks.targets import Targets

OnProgress = Callable[[str, int, int], None]
"""Called with the current task, the amount done, and the total."""

VERSION = 19
"""Increased when the same source would be decoded differently."""
EQUAL = "equal"
"""The array of the samples that equal another, where there are any (`Copies.equal_rows`)."""
BESIDE = ("groups", "order")
"""Arrays beside samples, targets and domains that a source may have."""
META = "meta.json"
FIELDS = (
    *("name", "kind", "task", "classes", "scores", "class_names", "class_labels", "domain_names", "train_rows"),
    *("val_rows", "extent", "table", "mean", "std", "warnings", "scaling", "decisions", "channels", "fields"),
    *("file_count", "official"),
)
"""What meta.json says of a data set, by the names of its fields."""
ARRAYS = tuple(f"{name}.npy" for name in ("samples", "targets", "domains", EQUAL, *BESIDE))
CHECKED_FOR = 3600
"""Seconds for which the processes of a machine rely on each other's comparison of checksums."""


@dataclass(frozen=True)
class Block:
    """Consecutive samples, such as images uint8 [b, C, H, W]; targets [b, ...]; domains [b] or None.

    Domains are numbers, or values that `Content.domains` converts to numbers.
    """

    samples: np.ndarray
    targets: np.ndarray
    domains: np.ndarray | None = None


@dataclass(frozen=True)
class Content:
    """The content of a source.

    train, test: numbers of samples. val: how many of the last training samples are the source's own validation part.
    blocks: the training samples, then the test samples, each read once. kind: image, feature, token or fields (samples
    of several arrays, which are not normalised); by default bytes are images, other integers tokens and floats
    features. fields: the structure of batches that are not (samples, targets). categories: whether columns of rows may
    hold category codes. table: the columns of rows that a table had; numbers: the names of those that hold none.
    targets: converts the targets of all rows; by default they are class numbers, of `classes` named `class_names`.
    domains: the numbers and names of the blocks' domains; by default they are numbers, of `domain_names`. mean, std:
    None to measure them on the train part. remarks: lines to print after all blocks have been read. one_part: the
    source has no parts, and partitions hold test samples out. channels: the dimension of features along which constants
    are measured, None to find it. decisions: on how the source was read, after all blocks, given the targets.
    official: whether checksums or a library's version vouch that it is what its makers publish under its name.
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
    kind: str | None = None
    val: int = 0
    categories: bool = False
    table: tuple[RawColumn, ...] = ()
    numbers: tuple[str, ...] = ()
    targets: Callable[[np.ndarray], Targets] | None = None
    domains: Callable[[np.ndarray], tuple[np.ndarray, tuple[str, ...]]] | None = None
    remarks: Callable[[], Iterable[str]] = tuple
    fields: Fields | None = None
    one_part: bool = False
    beside: Callable[[], dict[str, np.ndarray]] = dict
    extent: int = 0
    decisions: Callable[[Targets], Iterable[Decision]] = lambda targets: ()
    channels: Channels | None = "first"
    official: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers of rows, if they have any."""
        return feature_names(self.table)

    def read_targets(self, values: np.ndarray) -> Targets:
        """The targets of all rows, by default class numbers."""
        if self.targets:
            return self.targets(values)
        classes = self.classes or int(values.max()) + 1
        return Targets(values.astype(np.int64), "classification", classes, self.class_names)


@dataclass(frozen=True)
class Source:
    """The origin of a data set. files and options: what determines the decoded content."""

    name: str
    read: Callable[[], Content]
    files: tuple[Path, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        """Twelve hexadecimal digits that depend on the files' sizes and times and on the options."""
        stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in self.files]
        text = json.dumps([VERSION, self.name, stats, self.options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def size_on_disk(folder: Path) -> int:
    """Disk space of a prepared data set, in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Holds a lock between processes. Raises ConfigError if the cache cannot be written."""
    lock = FileLock(path)
    with refuse_disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that replaces `folder` at the end, or is deleted after an exception."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # left by a killed process; the lock's holder is alone here
    try:
        part.mkdir(parents=True)
        yield part
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            folder.unlink()  # a file or a link in its place
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def refuse_disk_errors(folder: Path) -> Iterator[None]:
    """Turns disk errors in this block into ConfigError."""
    try:
        yield
    except OSError as error:
        needs = "make room, or set" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "set"
        raise ConfigError(
            f"cache {folder}: cannot be written ({error.strerror}); {needs} FEDBENCH_CACHE to another folder"
        ) from error


def is_usable(folder: Path) -> bool:
    try:
        read_prepared(folder)
    except ConfigError:
        return False
    return True


def digest_of(folder: Path) -> str:
    """A hash of the written samples, targets and domains."""
    return str(read_meta(folder)["sha256"])


def read_prepared(folder: Path) -> dict[str, Any]:
    """Reads the fields of a Dataset from its folder. Raises ConfigError."""
    try:
        meta = read_meta(folder)
        refuse_changes(folder, others_in(meta, META))
        samples = np.load(folder / "samples.npy", mmap_mode=mmap_mode(folder / "samples.npy"))
        arrays = {"targets": np.load(folder / "targets.npy")}
        arrays |= {name: load_if_there(folder / f"{name}.npy") for name in ("domains", *BESIDE)}
        if list(samples.shape) != meta["shape"] or bool(meta["domain_names"]) != (arrays["domains"] is not None):
            raise ValueError("the samples or the domains do not fit")
        for name, values in arrays.items():
            if values is not None and len(values) != len(samples):
                raise ValueError(f"{len(samples)} samples, {len(values)} {name}")
        facts: dict[str, Any] = {key: tuple(value) if isinstance(value := meta[key], list) else value for key in FIELDS}
        facts["decisions"] = tuple(map(Decision.from_json, facts["decisions"]))
        facts["table"] = tuple(map(RawColumn.from_json, facts["table"]))
        facts["fields"] = Fields.from_json(facts["fields"])
        facts[EQUAL] = load_if_there(folder / f"{EQUAL}.npy")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: damaged data set ({error}); delete it and start again") from error
    return {"samples": samples, **arrays, **facts}


def read_meta(folder: Path) -> dict[str, Any]:
    """The content of meta.json. Raises OSError, or ValueError if it is damaged."""
    try:
        meta = dict(json.loads((folder / META).read_text()))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{META}: {error}") from None
    if is_changed(meta, META):
        raise ValueError(f"{META}: {CHANGED}")
    return meta


def refuse_changes(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raises ValueError if a file has another checksum than the known one.

    The files are read once per machine and hour, unless they were touched since: every worker opens them.
    """
    stamp = folder.with_name(f"{folder.name}.checked")
    before, now = times(folder, checksums), time.monotonic()
    with suppress(OSError, ValueError, TypeError):
        then, checked = json.loads(stamp.read_text())
        if 0 <= now - then < CHECKED_FOR and checked == before:
            return
    for name, why in changes(folder, checksums):
        raise ValueError(f"{name}: {why}")
    with suppress(OSError):  # a cache that others filled may be read-only
        part = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        part.write_text(json.dumps([now, before]))
        part.replace(stamp)


def times(folder: Path, names: Iterable[str]) -> dict[str, list[int]]:
    """What changes whenever the content of a file does."""
    stats = {name: (folder / name).stat() for name in names}
    return {name: [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for name, stat in stats.items()}


def load_if_there(path: Path) -> np.ndarray | None:
    return np.load(path) if path.exists() else None


def mmap_mode(path: Path) -> Literal["c", "r"]:
    """Copy-on-write, because torch warns about read-only arrays; no process writes, so all share the pages.

    Read-only for files larger than memory, which the system refuses to map otherwise.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "c" if path.stat().st_size < memory // 4 else "r"


def is_intact(folder: Path) -> bool:
    """Whether the files are unchanged since they were written."""
    try:
        return not any(changes(folder, others_in(read_meta(folder), META)))
    except (OSError, ValueError):
        return False
