"""The cache of decoded data sets: NumPy files, written once per machine and mapped by every process.

A data set is stored in `$FEDBENCH_CACHE/decoded/NAME-KEY/` (default `~/.cache/fedbench`) as samples.npy, targets.npy,
domains.npy, groups.npy and order.npy if there are any, and meta.json with their checksums. It is written to a
temporary folder, which is then renamed. Processes that open it compare the checksums.
"""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from filelock import FileLock

from fedbench.checksums import CHANGED, KEY, changes, checksums, is_changed, others_in, with_own_checksum
from fedbench.data.copies import Copies
from fedbench.data.description import Decision
from fedbench.data.fields import Fields
from fedbench.data.normalisation import Channels, Statistics, moments_of
from fedbench.errors import ConfigError
from fedbench.tasks.class_numbers import NAMES_SHOWN
from fedbench.tasks.targets import Targets

OnProgress = Callable[[str, int, int], None]
"""Called with the current task, the amount done, and the total."""

VERSION = 9
"""Increased when the same source would be decoded differently."""
IN_BOTH_PARTS = 5
"""Number of samples of a class from which one is expected in the training part and in the test part."""
EQUAL = "equal"
"""The array of the samples that equal another, where there are any (`Copies.equal_rows`)."""
BESIDE = ("groups", "order")
"""Arrays beside samples, targets and domains that a source may have."""
META = "meta.json"
ARRAYS = tuple(f"{name}.npy" for name in ("samples", "targets", "domains", EQUAL, *BESIDE))
CHECKED_FOR = 3600
"""Seconds for which the processes of a machine rely on each other's comparison of checksums."""
FILES_NAMED = 20
"""Maximum number of a source's files named in meta.json, which is read at every start."""


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
    hold category codes. columns: the names of these columns, if they have any; numbers: of those that hold none.
    targets: converts the targets of all rows; by default they are class numbers, of `classes` named `class_names`.
    domains: the numbers and names of the blocks' domains; by default they are numbers, of `domain_names`. mean, std:
    None to measure them on the train part. remarks: lines to print after all blocks have been read. one_part: the
    source has no parts, and partitions hold test samples out. channels: the dimension of features along which constants
    are measured, None to find it. decisions: on how the source was read, after all blocks, given the targets. void:
    columns of rows in which values are missing, NaN.
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
    columns: tuple[str, ...] = ()
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
    void: tuple[int, ...] = ()


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


def root() -> Path:
    """The folder of the cache."""
    return Path(os.environ.get("FEDBENCH_CACHE") or Path.home() / ".cache" / "fedbench").expanduser().absolute()


def size_on_disk(folder: Path) -> int:
    """Disk space of a prepared data set, in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir())


def prepare(source: Source, progress: OnProgress | None = None) -> Path:
    """The folder of the decoded data set, decoded now if missing. Raises ConfigError.

    If several processes ask at once, one decodes and the others wait.
    """
    slug = re.sub(r"[^\w.-]+", "-", source.name).strip("-")[-60:]
    folder = root() / "decoded" / f"{slug}-{source.key()}"
    if not is_usable(folder):
        with hold_lock(folder.with_name(f"{folder.name}.lock")):
            if not is_usable(folder):
                if os.path.lexists(folder):
                    logging.getLogger("fedbench").warning("%s: damaged, decoding it again", folder)
                build_folder(source, folder, progress)
    return folder


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


def build_folder(source: Source, folder: Path, progress: OnProgress | None) -> None:
    """Decodes a source into its folder."""
    if progress is None:
        logging.getLogger("fedbench").info("decoding data %s", source.name)
    content = source.read()
    if not content.train or not (content.test or content.one_part):
        raise ConfigError(
            f"data {source.name}: {content.train} training and {content.test} test samples; both are needed: bring a "
            "test part, or data of one part, of which samples are then held out"
        )
    with refuse_disk_errors(folder.parent), replace_folder(folder) as part:
        write_decoded(source, content, part, progress)


@dataclass
class Tally:
    """What is known of the samples of a content written so far."""

    content: Content
    shape: tuple[int, ...] = ()
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.uint8))
    kind: str = ""
    rows: int = 0
    moments: Statistics = field(default_factory=Statistics)
    targets: list[np.ndarray] = field(default_factory=list)
    domains: list[np.ndarray] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)
    copies: Copies = field(default_factory=lambda: Copies(0))

    def begin(self, samples: np.ndarray) -> None:
        """Takes shape and type from the first samples."""
        content = self.content
        self.shape, self.dtype = (content.train + content.test, *samples.shape[1:]), samples.dtype
        usual = "image" if samples.dtype == np.uint8 else "token" if samples.dtype.kind in "iu" else "feature"
        self.kind = content.kind or usual
        self.copies = Copies(content.train)
        if content.kind != "fields":
            self.moments = moments_of(samples, content.categories, content.columns, content.numbers, content.channels)

    def add(self, block: Block, samples: np.ndarray) -> None:
        self.moments.add(samples[: max(0, self.content.train - self.rows)])
        self.digest.update(samples.data)
        self.copies.add(samples)
        self.targets.append(block.targets)
        if block.domains is not None:
            self.domains.append(block.domains)
        self.rows += len(samples)


def write_decoded(source: Source, content: Content, folder: Path, progress: OnProgress | None) -> None:
    """Streams the samples, then writes targets, domains and metadata. Raises ConfigError."""
    rows, tally = content.train + content.test, Tally(content)
    with (folder / "samples.npy").open("wb") as file:
        for block in content.blocks:
            samples = np.ascontiguousarray(block.samples)
            if not tally.shape:
                tally.begin(samples)
                write_header(file, tally.dtype, tally.shape)
            check_block(source.name, block, samples, tally)
            tally.add(block, samples)
            file.write(samples.data)
            if progress:
                progress(f"decoding {source.name}", tally.rows, rows)
        flush_to_disk(file)
    if tally.rows != rows:
        raise ConfigError(f"data {source.name}: {tally.rows} samples were read, {rows} were announced")
    targets, names = targets_of(content, np.concatenate(tally.targets)), content.domain_names
    save_array(folder / "targets.npy", targets.values)
    tally.digest.update(targets.values.tobytes())
    if tally.domains:
        domains = np.concatenate(tally.domains)
        if content.domains is not None:
            domains, names = content.domains(domains)
        save_array(folder / "domains.npy", domains.astype(np.int64))
        tally.digest.update(domains.astype(np.int64).tobytes())
    if tally.copies.pairs:
        save_array(folder / f"{EQUAL}.npy", tally.copies.equal_rows())
    for name, values in sorted(content.beside().items()):
        save_array(folder / f"{name}.npy", values)
        tally.digest.update(values.tobytes())
    meta = {**describe_cache(source, tally, targets, names), KEY: checksums(folder, ARRAYS)}
    with (folder / META).open("w") as text:
        json.dump(with_own_checksum(meta, META), text, indent=1)
        flush_to_disk(text)


def check_block(name: str, block: Block, samples: np.ndarray, tally: Tally) -> None:
    """Raises ConfigError for a block that is unlike the first, or whose samples, targets and domains differ in number.

    The file of samples has one shape and one type: other bytes would be read as other samples.
    """
    if (samples.shape[1:], samples.dtype) != (tally.shape[1:], tally.dtype):
        raise ConfigError(
            f"data {name}: samples of shape {[*samples.shape[1:]]} and type {samples.dtype} follow samples of shape "
            f"{[*tally.shape[1:]]} and type {tally.dtype}; give all the same"
        )
    for what, values in (("targets", block.targets), ("domains", block.domains)):
        if values is not None and len(values) != len(samples):
            raise ConfigError(f"data {name}: {len(samples)} samples have {len(values)} {what}; give one for each")
    if tally.rows and bool(tally.domains) != (block.domains is not None):
        raise ConfigError(f"data {name}: some samples have a domain and others have none; give it for all, or for none")


def targets_of(content: Content, values: np.ndarray) -> Targets:
    """The targets of all rows as the source reads them: by default class numbers."""
    if content.targets:
        return content.targets(values)
    classes = content.classes or int(values.max()) + 1
    return Targets(values.astype(np.int64), "classification", classes, content.class_names)


def absent_classes(targets: Targets, train: int) -> Iterator[str]:
    """Names classes without samples, or with some in one of two parts only. train: the number of training samples."""
    if not targets.classes:
        return

    def counts(values: np.ndarray) -> np.ndarray:
        return np.bincount(values, minlength=targets.classes)

    every = counts(targets.values)
    cases = {"": every == 0}
    if train < len(targets.values):
        for name, values in (("training", targets.values[:train]), ("test", targets.values[train:])):
            cases[f" in the {name} part"] = (counts(values) == 0) & (every >= IN_BOTH_PARTS)
    for where, absent in cases.items():
        names = [targets.names[number] if targets.names else str(number) for number in np.flatnonzero(absent)]
        if names:
            shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
            yield f"{len(names)} of {targets.classes} classes have no samples{where}: {shown}"


def write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    # Written as a stream, not to a mapped file, so that a full disk raises OSError instead of a fatal signal.
    described = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": described, "fortran_order": False, "shape": shape})


def flush_to_disk(file: Any) -> None:
    """Flushes to disk before the folder is renamed, so that a power cut leaves no incomplete folder."""
    file.flush()
    os.fsync(file.fileno())


def save_array(path: Path, values: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, values)
        flush_to_disk(file)


def describe_cache(source: Source, tally: Tally, targets: Targets, domain_names: tuple[str, ...]) -> dict[str, Any]:
    """The content of meta.json."""
    content = tally.content
    decided = tally.moments.decide(f"data {source.name}")
    mean, std = tally.moments.mean_and_std()
    measured = content.mean is None and content.std is None
    warnings = [*content.warnings, *content.remarks(), *tally.copies.remarks(), *targets.remarks]
    return {
        "version": VERSION,
        "name": source.name,
        "shape": tally.shape,
        "kind": tally.kind,
        "task": targets.task,
        "classes": targets.classes,
        "scores": targets.outputs,
        "class_names": targets.names,
        "class_labels": targets.labels,
        "domain_names": domain_names,
        "train_rows": content.train,
        "val_rows": content.val,
        "extent": content.extent,
        "columns": content.columns,
        "void": content.void,
        "mean": content.mean or mean,
        "std": content.std or std,
        "warnings": [*warnings, *absent_classes(targets, content.train)],
        "scaling": list(tally.moments.remarks()) if measured else [],
        "decisions": [decision.as_json() for decision in (*content.decisions(targets), *decided)],
        **({"channels": "last"} if tally.moments.channels == "last" else {}),
        "files": [str(path) for path in source.files[:FILES_NAMED]],
        "file_count": len(source.files),
        "options": {key: str(value) for key, value in source.options.items()},
        "sha256": tally.digest.hexdigest(),
        **({"fields": content.fields.as_json()} if content.fields else {}),
    }


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
        targets = np.load(folder / "targets.npy")
        domains, *beside = (load_if_there(folder / f"{name}.npy") for name in ("domains", *BESIDE))
        if list(samples.shape) != meta["shape"] or len(targets) != len(samples):
            raise ValueError(f"{len(samples)} samples, {len(targets)} targets")
        if bool(meta["domain_names"]) != (domains is not None) or (
            domains is not None and len(domains) != len(targets)
        ):
            raise ValueError("the domains do not fit")
        if any(values is not None and len(values) != len(targets) for values in beside):
            raise ValueError("the groups or the order do not fit")
        listed = ("class_names", "class_labels", "domain_names", "mean", "std", "warnings", "scaling")
        names = {key: tuple(meta[key]) for key in listed}
        fixed = {key: meta[key] for key in ("name", "kind", "task", "classes", "train_rows", "val_rows")}
        fixed["decisions"] = tuple(map(Decision.from_json, meta.get("decisions", ())))
        fixed["channels"] = meta.get("channels", "first")
        fixed["fields"] = Fields.from_json(meta.get("fields"))
        fixed |= {key: tuple(meta.get(key, ())) for key in ("columns", "void")}
        fixed[EQUAL] = load_if_there(folder / f"{EQUAL}.npy")
        fixed |= {key: meta.get(key, 0) for key in ("scores", "extent", "file_count")}  # older folders lack them
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: damaged data set ({error}); delete it and start again") from error
    columns = dict(zip(BESIDE, beside, strict=True))
    return {"samples": samples, "targets": targets, "domains": domains, **columns, **names, **fixed}


def read_meta(folder: Path) -> dict[str, Any]:
    """The content of meta.json. Raises OSError, or ValueError if it is damaged."""
    try:
        meta = dict(json.loads((folder / META).read_text()))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{META}: {error}") from None
    if is_changed(meta, META):
        raise ValueError(f"{META}: {CHANGED}")
    return meta


def refuse_changes(folder: Path, known: Mapping[str, str]) -> None:
    """Raises ValueError if a file has another checksum than the known one.

    The files are read once per machine and hour, unless they were touched since: every worker opens them.
    """
    stamp = folder.with_name(f"{folder.name}.checked")
    before, now = times(folder, known), time.monotonic()
    with suppress(OSError, ValueError, TypeError):
        then, checked = json.loads(stamp.read_text())
        if 0 <= now - then < CHECKED_FOR and checked == before:
            return
    for name, why in changes(folder, known):
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
