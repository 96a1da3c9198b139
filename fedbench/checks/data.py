"""What data promise: they are read as they are meant, no sample is on two sides, and nothing gives the target away."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from fedbench.checks.check import Check, CheckFailure, DoesNotApply
from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.data.dataset import Dataset
from fedbench.data.describe import description_of
from fedbench.data.partitions import Partition, partition
from fedbench.errors import ConfigError

SHOWN = 3
"""Samples and values that are shown."""
MOST_ROWS = 5000
"""Rows in which nearly equal samples and telling columns are looked for, drawn by a fixed stream."""
MANY = 0.01
"""Share of the test samples that may also be in the training part, under another name."""
REPEATED, BY_MOST = 5, 0.9
"""A column has few values where so many rows share each of them, in at least this share of the rows."""
DEVIATIONS = 3
"""Standard deviations by which more test samples may equal a training sample than chance makes."""
NEAR = 1e-3
"""Difference of two samples that are nearly equal, relative to the spread of the numbers."""
TELLS = 0.995
"""Share of the targets that a single column predicts where it gives them away."""
COMMON = 0.9
"""Share of the most frequent class from which on a column tells nothing by being right so often."""
MOST_VALUES = 32
"""Distinct values of a column that stand for themselves; more of them are ranges."""
FEW = 2
"""Samples below which a client's part says nothing."""


class ReadData:
    """Data that are checked. config: with the section data and, if given, partition."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @cached_property
    def dataset(self) -> Dataset:
        """Raises ConfigError."""
        return Dataset.of_run(self.config)

    @cached_property
    def dealt(self) -> Partition:
        """The clients, as the configuration deals them. Raises ConfigError."""
        return partition(self.dataset, self.config, self.config.seeds[0])

    @cached_property
    def rows(self) -> np.ndarray:
        """All samples as rows of numbers, [rows, numbers], float32."""
        samples = np.asarray(self.dataset.samples)
        return samples.reshape(len(samples), -1).astype(np.float32)

    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the training and the test rows, of clients or, where these are open, of the parts."""
        try:
            clients = [self.dealt.rows_of(n) for n in range(len(self.dealt.clients))]
        except ConfigError:
            every = np.arange(len(self.rows))
            return every[: self.dataset.train_rows], every[self.dataset.train_rows :]
        train = np.unique(np.concatenate([own.train for own in clients]))
        return train, np.unique(np.concatenate([own.test for own in clients]))

    @cached_property
    def raw_columns(self) -> list[np.ndarray]:
        """The places in a row of each column that was read: several of a category, one of other numbers."""
        table, width = self.dataset.table, self.rows.shape[1]
        if any(column.kind == "list" for column in table) or sum(len(column.features) for column in table) != width:
            return [*np.arange(width)[:, None]]
        return np.split(np.arange(width), np.cumsum([len(column.features) for column in table])[:-1])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a row."""
        names = self.dataset.columns
        return names if len(names) == self.rows.shape[1] else tuple(f"number {n}" for n in range(self.rows.shape[1]))


def reads(data: ReadData) -> str:
    description = description_of(data.dataset, data.config)
    return "; ".join(line.strip() for line in description.block)


def samples_beside_each_other(data: ReadData) -> str:
    """The first samples as they lie on disk and their targets, to compare with one's own."""
    dataset, parts = data.dataset, []
    for row in range(min(SHOWN, len(data.rows))):
        numbers = ", ".join(f"{value:g}" for value in data.rows[row][:SHOWN])
        target = dataset.targets[row]
        named = dataset.class_names[int(target)] if dataset.classes and np.ndim(target) == 0 else target
        parts.append(f"{numbers}{', ...' if data.rows.shape[1] > SHOWN else ''} -> {named}")
    return "; ".join(parts)


def numbers_are_finite(data: ReadData) -> str:
    void = set(data.dataset.void)
    bad = [n for n in range(data.rows.shape[1]) if n not in void and not np.isfinite(data.rows[:, n]).all()]
    if bad:
        raise CheckFailure(f"{data.columns[bad[0]]} holds values that are not finite: remove them, or write them empty")
    return f"{plural(len(void), 'column')} with missing values, which medians fill" if void else ""


def sides_are_disjoint(data: ReadData) -> str:
    """No test sample equals a training sample, or nearly, but for those that chance makes equal."""
    train, test = data.sides()
    if not len(train) or not len(test):
        raise DoesNotApply("there is one part")
    equal = test[_are_among(data.rows[test], data.rows[train])]
    many, note = len(equal) > max(1, MANY * len(test)), ""
    chance = _share_by_chance(data, train, test) if many else 0.0
    if many and len(equal) / len(test) > chance + DEVIATIONS * _deviation(chance, len(train), len(test)):
        where = f", and chance makes about {chance:.0%} equal" if chance else ""
        raise CheckFailure(
            f"{plural(len(equal), 'test sample')} of {len(test)} equal a training sample (row {equal[0]}){where}: "
            "remove copies, or keep those that belong together on one side with partition.test_by"
        )
    if many:
        note = f", as chance makes them where columns have few values: {chance:.0%} of training samples equal another"
    if near := _near_copies(data, train, test):
        raise CheckFailure(
            f"{plural(near, 'test sample')} nearly equal a training sample: they may show the same thing twice: keep "
            "what belongs together on one side with partition.test_by"
        )
    return f"{len(equal)} of {len(test)} test samples equal a training sample{note}"


def _are_among(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which rows equal one of the others, bool [rows]."""
    known = {row.tobytes() for row in others}
    return np.array([row.tobytes() in known for row in rows], bool)


def _share_by_chance(data: ReadData, train: np.ndarray, test: np.ndarray) -> float:
    """The share of test samples that equal a training sample where all are drawn alike: as many as in training.

    It is 0 unless all columns have few values, and so few columns that each by itself, dealt anew to the rows, makes
    many rows equal: other rows that are equal are copies.
    """
    rows = data.rows[np.concatenate([train, test])]
    if data.dataset.kind != "feature" or not all(_has_few_values(rows[:, places]) for places in data.raw_columns):
        return 0.0
    draw, dealt = np.random.default_rng(0), rows.copy()
    for places in data.raw_columns:
        dealt[:, places] = rows[draw.permutation(len(rows))][:, places]
    if _are_among(dealt[len(train) :], dealt[: len(train)]).mean() <= MANY:
        return 0.0
    counts = Counter(row.tobytes() for row in rows[: len(train)])
    return sum(count for count in counts.values() if count > 1) / len(train)


def _has_few_values(column: np.ndarray) -> bool:
    """Whether most rows hold a value that several others hold too. column: [rows, places]."""
    counts = Counter(cell.tobytes() for cell in column)
    return sum(count for count in counts.values() if count >= REPEATED) >= BY_MOST * len(column)


def _deviation(share: float, train: int, test: int) -> float:
    """Of the difference of a share in the test part from that in training, drawn alike."""
    return float(np.sqrt(share * (1 - share) * (1 / train + 1 / test)))


def _near_copies(data: ReadData, train: np.ndarray, test: np.ndarray) -> int:
    """How many test samples nearly equal a training sample, if many do; not counting equal ones."""
    draw = np.random.default_rng(0)
    some = draw.permutation(test)[: MOST_ROWS // 10]
    others = draw.permutation(train)[:MOST_ROWS]
    of_table = 0 if len(data.dataset.columns) == data.rows.shape[1] else None  # columns have units of their own
    spread = np.nanstd(data.rows[others], axis=of_table)
    scaled = np.nan_to_num((data.rows - np.nanmean(data.rows[others], axis=of_table)) / np.where(spread > 0, spread, 1))
    squares = (scaled[others] ** 2).sum(1)
    count = 0
    for row in some:
        closest = others[np.argmin(squares - 2 * scaled[others] @ scaled[row])]
        count += 0 < float(np.square(scaled[closest] - scaled[row]).mean()) < NEAR**2
    return count if count > max(1, MANY * len(some)) else 0


def parts_have_the_same_classes(data: ReadData) -> str:
    dataset = data.dataset
    if not dataset.classes or dataset.targets.ndim > 1:
        raise DoesNotApply("targets are not one class each")
    train, test = data.sides()
    one, other = (set(np.unique(dataset.targets[rows]).tolist()) for rows in (train, test))
    if only := sorted(other - one):
        name = dataset.class_names[int(only[0])] if dataset.class_names else only[0]
        raise CheckFailure(
            f"class {name} is in the test part alone, so that no client can learn it: name the parts anew, or leave "
            "its samples out"
        )
    missing = f", {plural(len(one - other), 'class')} of training in no test part" if one - other else ""
    return f"{len(one)} classes{missing}"


def columns_vary(data: ReadData) -> str:
    if data.dataset.kind != "feature":
        raise DoesNotApply("samples are not columns of numbers")
    constant = [
        data.columns[n] for n in range(data.rows.shape[1]) if np.nanmin(data.rows[:, n]) == np.nanmax(data.rows[:, n])
    ]
    if constant and data.dataset.columns:
        raise CheckFailure(f"{constant[0]} has one value in all rows, which tells nothing: leave the column out")
    train, test = data.sides()
    for n in range(data.rows.shape[1]) if data.dataset.columns and len(train) and len(test) else ():
        if _is_constant(data.rows[train, n]) and not _is_constant(data.rows[test, n]):
            raise CheckFailure(f"{data.columns[n]} has one value in training and others in the test part: leave it out")
    return f"{data.rows.shape[1]} columns" + (f", {len(constant)} of them constant" if constant else "")


def _is_constant(values: np.ndarray) -> bool:
    return bool(np.nanmin(values) == np.nanmax(values))


def no_column_tells(data: ReadData) -> str:
    """No single column predicts the target alone."""
    dataset = data.dataset
    if dataset.kind != "feature" or dataset.targets.ndim > 1:
        raise DoesNotApply("samples are not columns of numbers with one target each")
    rows = np.random.default_rng(0).permutation(len(data.rows))[:MOST_ROWS]
    target = dataset.targets[rows]
    for n in range(data.rows.shape[1]):
        values = data.rows[rows, n]
        tells = _classes_told(values, target) if dataset.classes else _numbers_told(values, target)
        if tells > TELLS:
            raise CheckFailure(
                f"{data.columns[n]} alone predicts the target ({tells:.1%}): is it known before the target is? If not, "
                "leave the column out"
            )
    return "none predicts the target alone"


def _classes_told(values: np.ndarray, target: np.ndarray) -> float:
    """The share of the samples that the most frequent class of each range of values predicts; 0 if one class rules."""
    counts = np.unique(target, return_counts=True)[1]
    if len(counts) < 2 or counts.max() > COMMON * len(target):
        return 0.0
    kinds = np.unique(values)
    if len(kinds) > MOST_VALUES:
        edges = np.quantile(values[np.isfinite(values)], np.linspace(0, 1, MOST_VALUES + 1)[1:-1])
        values = np.digitize(values, np.unique(edges))
        kinds = np.unique(values)
    right = 0
    for kind in kinds:
        right += np.unique(target[values == kind], return_counts=True)[1].max() if (values == kind).any() else 0
    return float(right / len(target))


def _numbers_told(values: np.ndarray, target: np.ndarray) -> float:
    """The square of the correlation with a target that is a number."""
    finite = np.isfinite(values)
    if finite.sum() < SHOWN or _is_constant(values[finite]) or _is_constant(target[finite]):
        return 0.0
    return float(np.corrcoef(values[finite], target[finite].astype(float))[0, 1] ** 2)


def clients_are_large_enough(data: ReadData) -> str:
    """For a batch, for a split and for a score."""
    train, test = data.dealt.sizes("train"), data.dealt.sizes("test")
    batch = data.config.train.batch_size
    if (few := int((train < FEW).sum())) > 0:
        raise CheckFailure(
            f"{plural(few, 'client')} of {len(train)} with fewer than {FEW} training samples: leave small clients out, "
            "or deal the samples otherwise (partition)"
        )
    if (none := int((test < 1).sum())) > 0:
        raise CheckFailure(f"{plural(none, 'client')} of {len(test)} without a test sample have no score")
    small = int((train < batch).sum()) if isinstance(batch, int) else 0
    note = f"; {plural(small, 'client')} with less than one batch of {batch}" if small else ""
    return f"{len(train)} clients, {train.min()} to {train.max()} training samples{note}"


def _checks() -> Iterator[Check[ReadData]]:
    """In the order in which they are asked."""
    named: dict[str, tuple[str, Any]] = {
        "reads": ("they are read", reads),
        "samples": ("samples are what their author gave", samples_beside_each_other),
        "finite": ("all numbers are finite", numbers_are_finite),
        "sides": ("no test sample is a training sample", sides_are_disjoint),
        "classes": ("classes of the test part are learnt", parts_have_the_same_classes),
        "constants": ("columns vary", columns_vary),
        "giveaways": ("no column gives the target away", no_column_tells),
        "clients": ("clients are large enough", clients_are_large_enough),
    }
    for name, (proves, function) in named.items():
        yield Check(name, proves, "data", function)


DATA_CHECKS = tuple(_checks())
