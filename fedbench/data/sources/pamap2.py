"""PAMAP2: motion sensors on nine persons who do 12 activities (18 with the optional ones); every person is a domain.

A sample is a window of readings (100 per second) of one activity. Its channels are acceleration (by the sensor of 16 g,
which the authors recommend), rotation and magnetic field of hand, chest and ankle, and optionally the heart rate.
Missing readings take the value before them. Readings of activity 0 (transient) are left out. There is no published test
part. Source: Reiss and Stricker, "Introducing a new benchmarked dataset for activity monitoring", ISWC 2012.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from fedbench.config import Section
from fedbench.config.section import PositiveInt
from fedbench.data.cache import Block, Content
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.published import Extent, PublishedSet
from fedbench.errors import ConfigError

COLUMNS = 54
ACTIVITY, HEART_RATE = 1, 2
FIRST = (3, 20, 37)
"""The first columns of hand, chest, ankle: temperature; acceleration (16 g, 6 g), rotation, field, 3 columns each."""
CHANNELS = [first + offset for first in FIRST for offset in (1, 2, 3, 7, 8, 9, 10, 11, 12)]
PROTOCOL = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7, 12, 13, 16, 17, 24),
        (
            *("lying", "sitting", "standing", "walking", "running", "cycling", "Nordic walking", "ascending stairs"),
            *("descending stairs", "vacuum cleaning", "ironing", "rope jumping"),
        ),
        strict=True,
    )
)
OPTIONAL = dict(
    zip(
        (9, 10, 11, 18, 19, 20),
        ("watching TV", "computer work", "car driving", "folding laundry", "house cleaning", "playing soccer"),
        strict=True,
    )
)
PUBLISHED = {
    "pamap2": PublishedSet(
        Extent(7_500, (len(CHANNELS), 256), len(PROTOCOL), "feature"),
        ("Protocol",),
        below=("PAMAP2_Dataset",),
        extras=("Optional",),
        is_needed=lambda name: name.endswith(".dat") and "__MACOSX" not in name,
        origin="get PAMAP2 Physical Activity Monitoring from the UCI repository, unpack PAMAP2_Dataset.zip",
        size="nine recordings, 0.7 GB",
        licence="CC BY 4.0 (UCI repository)",
    )
}


class Options(Section):
    length: PositiveInt = Field(256, description="readings of a window, 100 per second")
    step: PositiveInt | None = Field(None, description="readings from one window to the next (default: data.length)")
    heart_rate: bool = Field(False, description="add the heart rate as a channel")
    optional: bool = Field(False, description="add the recordings of the folder Optional, and their activities")


def read(name: str, folder: Path, options: Options) -> Content:
    activities = dict(sorted((PROTOCOL | (OPTIONAL if options.optional else {})).items()))
    folders = ("Protocol", "Optional")[: 1 + options.optional]
    files = sorted((file for place in folders for file in (folder / place).glob("subject*.dat")), key=lambda f: f.stem)
    if not files:
        raise ConfigError(f"{folder / 'Protocol'}: no subject*.dat files in it")
    persons = tuple(sorted({file.stem for file in files}))
    blocks, missing, order = [], 0.0, list[np.ndarray]()
    begins = dict.fromkeys(persons, 0)  # of a person's recordings, one after the other
    for file in files:
        readings, labels = read_recording(file, options.heart_rate)
        missing += np.isnan(readings[labels > 0]).mean() / len(files)
        step = options.step or options.length
        samples, targets, starts = windows(fill_gaps(readings), labels, options.length, step, activities)
        order.append(begins[file.stem] + starts)
        begins[file.stem] += len(labels)
        blocks.append(Block(samples, targets, np.full(len(targets), persons.index(file.stem))))
    warnings = [f"{missing:.1%} of the readings are missing and take the value before them"]
    if options.step and options.step < options.length:
        warnings.append(
            "windows overlap: test windows that partitions hold out share readings with training windows, except "
            "under partition natural with partition.test last"
        )
    count = sum(len(block.targets) for block in blocks)
    names = tuple(activities.values())
    return Content(
        count,
        0,
        blocks,
        len(names),
        names,
        persons,
        warnings=tuple(warnings),
        one_part=True,
        beside=lambda: {"order": np.concatenate(order)},
        extent=options.length,
    )


def read_recording(file: Path, heart_rate: bool) -> tuple[np.ndarray, np.ndarray]:
    """Readings float32 [rows, channels], NaN where missing, and activities int64 [rows]. Raises ConfigError."""
    with refuse_damage(file, "not a recording"):
        table = pd.read_csv(file, sep=r"\s+", header=None, dtype=np.float32)
    if table.shape[1] != COLUMNS or table[ACTIVITY].isna().any():
        raise ConfigError(
            f"{file}: {table.shape[1]} columns, or rows without an activity; {COLUMNS} columns are expected"
        )
    values = table.to_numpy()
    return values[:, [HEART_RATE, *CHANNELS] if heart_rate else CHANNELS], values[:, ACTIVITY].astype(np.int64)


def fill_gaps(readings: np.ndarray) -> np.ndarray:
    """Missing values take the one before them in their column, or else the one after; 0 in a column without any."""
    return pd.DataFrame(readings).ffill().bfill().fillna(0).to_numpy()


def windows(
    readings: np.ndarray, labels: np.ndarray, length: int, step: int, activities: dict[int, str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows [n, channels, length] in which one activity goes on, their classes, and their first readings, int64 [n].

    labels: the activity of every reading.
    """
    numbers = {activity: number for number, activity in enumerate(activities)}
    ends = [*np.flatnonzero(np.diff(labels)) + 1, len(labels)]
    runs = [run for run in zip([0, *ends[:-1]], ends, strict=True) if labels[run[0]] in activities]
    starts = np.array([start for first, end in runs for start in range(first, end - length + 1, step)], np.int64)
    views = np.lib.stride_tricks.sliding_window_view(readings, min(length, len(readings)), axis=0)[starts]
    return np.ascontiguousarray(views), np.array([numbers[labels[start]] for start in starts], np.int64), starts
