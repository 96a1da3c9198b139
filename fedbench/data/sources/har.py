"""UCI HAR: windows of a phone's sensors while 30 persons do six activities; every person is a domain.

The published parts have different persons: 21 train, 9 test. Source: Anguita, Ghio, Oneto, Parra and Reyes-Ortiz, "A
public domain dataset for human activity recognition using smartphones", ESANN 2013.
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Block, Content
from fedbench.data.reading.arrays import checked_labels, refuse_damage
from fedbench.data.reading.listing import read_list
from fedbench.data.reading.published import Extent, PublishedSet
from fedbench.errors import ConfigError

SIGNALS = tuple(f"{sensor}_{axis}" for sensor in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
PUBLISHED = {
    "har": PublishedSet(
        Extent(7_352, (561,), 6, "feature"),
        ("activity_labels.txt", "train", "test"),
        below=("UCI HAR Dataset",),
        is_needed=lambda name: name.endswith(".txt") and "__MACOSX" not in name,
        images=10_299,
        origin="get Human Activity Recognition Using Smartphones from the UCI repository, unpack UCI HAR Dataset.zip",
        size="10,299 windows, 60 MB",
        licence="CC BY 4.0 (UCI repository)",
    )
}


class Options(Section):
    signals: bool = Field(False, description="read the nine signals [9, 128] instead of the 561 features")


def read(name: str, folder: Path, options: Options) -> Content:
    activities = tuple(row.values[-1] for row in read_list(folder / "activity_labels.txt", " "))
    parts = [read_persons(folder, part, options.signals, len(activities)) for part in ("train", "test")]
    if parts[0].samples.shape[1:] != parts[1].samples.shape[1:]:
        raise ConfigError(f"{folder}: samples of the two parts have different shapes")
    persons, numbers = np.unique(np.concatenate([part.domains for part in parts]), return_inverse=True)
    train, test = (len(part.targets) for part in parts)
    blocks = [
        Block(part.samples, part.targets, domains)
        for part, domains in zip(parts, np.split(numbers, [train]), strict=True)
    ]
    line = (
        "windows overlap by half: those that partitions hold out for testing or validation share readings with "
        "training windows; with partition.test part no person is on both sides of the test"
    )
    return Content(train, test, blocks, len(activities), activities, tuple(map(str, persons)), warnings=(line,))


def read_persons(folder: Path, part: str, signals: bool, classes: int) -> Block:
    """Samples [n, 561] or [n, 9, 128], classes from 0, and numbers of persons. Raises ConfigError."""
    part_folder = folder / part
    if signals:
        tables = [read_numbers(part_folder / "Inertial Signals" / f"{name}_{part}.txt") for name in SIGNALS]
        if len({table.shape for table in tables}) > 1:
            raise ConfigError(f"{part_folder / 'Inertial Signals'}: files of different numbers of rows or columns")
        samples = np.stack(tables, axis=1)
    else:
        samples = read_numbers(part_folder / f"X_{part}.txt")
    labels, persons = (read_numbers(part_folder / f"{name}_{part}.txt").astype(np.int64) for name in ("y", "subject"))
    if not len(samples) == len(labels) == len(persons):
        raise ConfigError(f"{part_folder}: {len(samples)} samples, {len(labels)} labels and {len(persons)} persons")
    where = str(part_folder / f"y_{part}.txt")
    return Block(samples, checked_labels(where, labels, len(samples), classes, first=1) - 1, persons[:, 0])


def read_numbers(file: Path) -> np.ndarray:
    """float32 [rows, columns] of a file of numbers between spaces. Raises ConfigError."""
    if file.is_file() and not file.stat().st_size:
        raise ConfigError(f"{file}: empty file")
    with refuse_damage(file, "cannot be read"):
        values = np.loadtxt(file, np.float32, ndmin=2)
    if not values.size or not np.isfinite(values).all():
        raise ConfigError(f"{file}: no rows, or values that are not finite")
    return values
