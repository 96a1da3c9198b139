"""Decodes data sets into the cache: samples are streamed to a file while constants are measured."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedbench import cache_folder
from fedbench.checksums import KEY, checksums, with_own_checksum
from fedbench.data.cache import (
    ARRAYS,
    EQUAL,
    META,
    VERSION,
    Block,
    Content,
    OnProgress,
    Source,
    hold_lock,
    is_usable,
    refuse_disk_errors,
    replace_folder,
)
from fedbench.data.copies import Copies
from fedbench.data.normalisation import Statistics, moments_of
from fedbench.data.sentinels import sentinel_remarks
from fedbench.errors import ConfigError
from fedbench.tasks.class_numbers import first_of
from fedbench.tasks.targets import Targets

IN_BOTH_PARTS = 5
"""Number of samples of a class from which one is expected in the training part and in the test part."""
FILES_NAMED = 20
"""Maximum number of a source's files named in meta.json, which is read at every start."""


def prepare(source: Source, progress: OnProgress | None = None) -> Path:
    """The folder of the decoded data set, decoded now if missing. Raises ConfigError.

    If several processes ask at once, one decodes and the others wait.
    """
    slug = re.sub(r"[^\w.-]+", "-", source.name).strip("-")[-60:]
    folder = cache_folder.root() / "decoded" / f"{slug}-{source.key()}"
    if not is_usable(folder):
        with hold_lock(folder.with_name(f"{folder.name}.lock")):
            if not is_usable(folder):
                if os.path.lexists(folder):
                    logging.getLogger("fedbench").warning("%s: damaged, decoding it again", folder)
                build_folder(source, folder, progress)
    return folder


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
        self.copies = Copies(content.train - content.val, content.val)
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
    targets, domain_names = write_beside_samples(tally, folder)
    remarks = list[str]()
    if tally.kind == "feature" and not content.table:  # a table asks
        remarks += sentinel_remarks(np.load(folder / "samples.npy", mmap_mode="r"), "feature")
    meta = {**describe_cache(source, tally, targets, domain_names, remarks), KEY: checksums(folder, ARRAYS)}
    with (folder / META).open("w") as text:
        json.dump(with_own_checksum(meta, META), text, indent=1)
        flush_to_disk(text)


def write_beside_samples(tally: Tally, folder: Path) -> tuple[Targets, tuple[str, ...]]:
    """Writes targets, domains, equal rows and what else has a value for each row.

    Returns the targets and the names of the domains. Raises ConfigError.
    """
    content = tally.content
    targets, names = content.read_targets(np.concatenate(tally.targets)), content.domain_names
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
    return targets, names


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
            yield f"{len(names)} of {targets.classes} classes have no samples{where}: {first_of(names)}"


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


def describe_cache(
    source: Source, tally: Tally, targets: Targets, domain_names: tuple[str, ...], remarks: Sequence[str]
) -> dict[str, Any]:
    """The content of meta.json. remarks: on samples."""
    content = tally.content
    decided = tally.moments.decide(f"data {source.name}")
    mean, std = tally.moments.mean_and_std()
    measured = content.mean is None and content.std is None
    warnings = [*content.warnings, *content.remarks(), *tally.copies.remarks(), *remarks, *targets.remarks]
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
        "table": [column.as_json() for column in content.table],
        "mean": content.mean or mean,
        "std": content.std or std,
        "warnings": [*warnings, *absent_classes(targets, content.train)],
        "scaling": list(tally.moments.remarks()) if measured else [],
        "decisions": [decision.as_json() for decision in (*content.decisions(targets), *decided)],
        "channels": "last" if tally.moments.channels == "last" else "first",
        "files": [str(path) for path in source.files[:FILES_NAMED]],
        "file_count": len(source.files),
        "options": {key: str(value) for key, value in source.options.items()},
        "sha256": tally.digest.hexdigest(),
        "fields": content.fields and content.fields.as_json(),
        "official": content.official,
    }
