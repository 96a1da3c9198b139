"""Determines from all targets whether they are classes, multiple labels or numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedbench.data.reading.resolution import check_resolution
from fedbench.errors import ConfigError

FEW_VALUES = 20
"""Up to this many integer values written as floats are classes by default."""
REPEATED = 20
"""Integers with gaps that occur at least this often on average are classes by default."""
NAMES_SHOWN = 20
"""Number of labels listed in a line."""


@dataclass(frozen=True)
class Targets:
    """Targets as a task needs them.

    values: int64 [n] class numbers, or float32 [n, ...]. classes: their number, 0 if targets are not classes. names: of
    the classes, or of the labels of a multilabel task. labels: the original label of each class, if it is not the class
    number. remarks: how the targets were read, if there was a choice.
    """

    values: np.ndarray
    task: str
    classes: int = 0
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class TargetError(ConfigError):
    """An error in the target of a row, whose place the source knows."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def read_targets(
    values: np.ndarray, task: str = "auto", names: Sequence[str] = (), classes: int | None = None
) -> Targets:
    """The targets of all rows, for the requested task or the one that they look like.

    values: integers, floats, booleans or text, [n] or [n, k]. names: of the classes, in the order of their numbers.
    classes: their number, if set. Raises TargetError for an invalid row, and ConfigError if only the user knows the
    meaning of the values.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise TargetError(row, f"target {values[row].tolist()} is not finite; remove such samples or fill them in")
    if task == "regression":
        return _numbers(values)
    if values.ndim > 1:
        return _rows(values, task, names, classes)
    if task == "multilabel":
        raise ConfigError(
            "data.task = multilabel: every sample has one target; pass a row with a 0 or 1 for each label"
        )
    if values.dtype.kind in "US":
        return _texts(values, names, classes)
    declared = bool(names or classes or task == "classification")
    if values.dtype.kind == "f":
        return _floats(values, task, names, classes, declared)
    return _whole(values, names, classes, declared)


def _numbers(values: np.ndarray) -> Targets:
    if values.dtype.kind in "US":
        raise TargetError(0, f"label {str(values.flat[0])!r} is text; data.task = regression needs numbers")
    columns = values.reshape(len(values), -1)
    called = ["the target"] if values.ndim == 1 else [f"target {number}" for number in range(columns.shape[1])]
    check_resolution("data.task = regression", columns, called)
    return Targets(values.astype(np.float32), "regression")


def _texts(values: np.ndarray, names: Sequence[str], classes: int | None) -> Targets:
    """Class names, in the declared order or in ascending order of those that occur."""
    found, compact = np.unique(values, return_inverse=True)
    if not names:
        if classes not in (None, len(found)):
            raise ConfigError(
                f"data.classes = {classes}: the targets are {len(found)} texts; leave it out, or give the data set "
                "`classes`, the names of all"
            )
        return _compact(values, found, compact)
    if classes not in (None, len(names)):
        raise ConfigError(f"data.classes = {classes}: the data set names {len(names)} classes; leave it out")
    if len(unknown := np.setdiff1d(found, names)):
        row = int(np.flatnonzero(values == unknown[0])[0])
        raise TargetError(row, f"label {str(unknown[0])!r} is none of the classes {_listed(tuple(names))}")
    places = np.array([names.index(name) for name in found.tolist()])
    return Targets(places[compact.reshape(-1)], "classification", len(names), tuple(names), tuple(names))


def _floats(values: np.ndarray, task: str, names: Sequence[str], classes: int | None, declared: bool) -> Targets:
    """One float per sample: classes if they are few integers, numbers if they are fractional."""
    broken = np.flatnonzero(values != np.floor(values))
    if len(broken):
        if declared:
            raise TargetError(int(broken[0]), f"label {values[broken[0]]:g} is not a whole number")
        return _numbers(values)
    _check_size(values)
    different = len(np.unique(values))
    if not declared and 2 * different > len(values):
        return _with(_numbers(values), "the targets are whole numbers that hardly repeat: regression")
    if not declared and different > FEW_VALUES:
        raise ConfigError(
            f"the targets are floats with {different} different whole values: set --task classification if they are "
            "classes, or --task regression if they are numbers"
        )
    found = _whole(values.astype(np.int64), names, classes, True)
    said = "the targets are whole numbers written as floats and are read as classes; --task regression if they are not"
    return found if task == "classification" else _with(found, said)


def _check_size(values: np.ndarray) -> None:
    """Raises TargetError for integers too large for int64."""
    if values.dtype.kind in "uf" and len(high := np.flatnonzero(abs(values.astype(np.float64)) >= 2.0**63)):
        raise TargetError(int(high[0]), f"label {values[high[0]]} is too large for a class")


def _whole(values: np.ndarray, names: Sequence[str], classes: int | None, declared: bool) -> Targets:
    """Integers or booleans: the declared classes, or those that occur."""
    _check_size(values)
    booleans = values.dtype.kind == "b"
    values = values.astype(np.int64)
    count = classes or len(names)
    low = np.flatnonzero(values < 0)
    if count and len(low):
        raise TargetError(int(low[0]), f"label {values[low[0]]} is outside the class range; {_range(count)}")
    if count:
        high = np.flatnonzero(values >= count)
        if len(high):
            hint = "" if classes else f" ({count} class names are given; data.classes sets another number)"
            raise TargetError(
                int(high[0]), f"label {values[high[0]]} is outside the class range; {_range(count)}{hint}"
            )
        return Targets(values, "classification", count, _of_each(names, count))
    found, compact = np.unique(values, return_inverse=True)
    if not declared and found[0] == -1 and found.tolist() != [-1, 1]:
        raise TargetError(
            int(low[0]),
            "label -1: remove such samples if it means a hidden label, or set --task classification if it is a class",
        )
    gaps = len(found) <= found[-1] - found[0]
    if not declared and len(found) > FEW_VALUES and len(values) < (REPEATED if gaps else 2) * len(found):
        raise ConfigError(
            f"the targets are whole numbers that hardly repeat ({len(found)} different ones in {len(values)} samples): "
            "set --task regression if they are numbers, or --task classification if they are classes"
        )
    if booleans:
        return Targets(compact.reshape(-1), "classification", len(found), tuple(str(bool(value)) for value in found))
    if np.array_equal(found, np.arange(len(found))):
        return Targets(values, "classification", len(found))
    return _compact(values, found, compact)


def _compact(values: np.ndarray, found: np.ndarray, compact: np.ndarray) -> Targets:
    """Labels with gaps, not from 0, or of text: classes in ascending order of the labels."""
    names = tuple(map(str, found))
    dense = found.dtype.kind == "i" and len(found) > 2 and found[-1] - found[0] == len(found) - 1
    line = f"labels {f'{names[0]} to {names[-1]}' if dense else _listed(names)} are classes 0 to {len(names) - 1}"
    return Targets(compact.reshape(-1).astype(np.int64), "classification", len(names), names, names, (line,))


def _rows(values: np.ndarray, task: str, names: Sequence[str], classes: int | None) -> Targets:
    """Several values per sample: a class as a one-hot row, multiple labels, or numbers."""
    kind, shape = values.dtype.kind, list(values.shape[1:])
    understood = "a row of 0 and 1 for several labels at once, or (--task regression) numbers are understood"
    if kind in "US":
        raise ConfigError(f"the targets are {shape} texts for each sample: one class, {understood}")
    binary = (values.ndim == 2) & ((values == 0) | (values == 1)).reshape(len(values), -1).all(axis=1)
    if binary.all():
        one_hot = (values.sum(axis=1) == 1).all()
        if one_hot and task != "multilabel":
            return _one_hot(values, task, names, classes)
        return _several(values, task, names)
    row = int(np.flatnonzero(~binary)[0])
    if task != "auto":
        raise TargetError(row, f"target {values[row].tolist()} is not a row of 0 and 1, which data.task = {task} needs")
    if kind != "f":
        raise ConfigError(f"the targets are {shape} whole numbers for each sample: {understood}")
    if ((values >= 0) & (values <= 1)).all() and np.allclose(values.sum(axis=1), 1, atol=1e-4):
        raise ConfigError(
            "the targets look like shares of classes, which add up to 1: pass the class itself, or set --task "
            "regression if they are numbers to predict"
        )
    return _numbers(values)


def _one_hot(values: np.ndarray, task: str, names: Sequence[str], classes: int | None) -> Targets:
    count = values.shape[1]
    if classes not in (None, count):
        raise ConfigError(f"data.classes = {classes}: the targets are one-hot rows of {count}; leave it out")
    said = f"the targets are one-hot rows and are read as {count} classes; --task regression if they are not"
    remarks = () if task == "classification" else (said,)
    return Targets(values.argmax(axis=1), "classification", count, _of_each(names, count), remarks=remarks)


def _several(values: np.ndarray, task: str, names: Sequence[str]) -> Targets:
    if task == "classification":
        row = int(np.flatnonzero(values.sum(axis=1) != 1)[0])
        raise TargetError(row, "several labels, or none; --task multilabel takes them")
    count = values.shape[1]
    said = f"the targets are rows of 0 and 1: {count} labels, several at once; --task regression if they are not"
    remarks = () if task == "multilabel" else (said,)
    return Targets(values.astype(np.float32), "multilabel", names=_of_each(names, count), remarks=remarks)


def _of_each(names: Sequence[str], count: int) -> tuple[str, ...]:
    """The names, if there is one for each."""
    return tuple(names) if len(names) == count else ()


def _with(found: Targets, remark: str) -> Targets:
    return replace(found, remarks=(remark, *found.remarks))


def _range(count: int) -> str:
    return f"0 to {count - 1}" if count else "0 and up"


def _listed(names: Sequence[str]) -> str:
    if len(names) <= NAMES_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: NAMES_SHOWN // 2])}, ... {', '.join(names[-2:])}"
