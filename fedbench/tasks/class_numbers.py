"""Reads classes: whole numbers, booleans, text and one-hot rows."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from fedbench.errors import ConfigError
from fedbench.tasks.targets import TargetError, Targets, of_each

NAMES_SHOWN = 20
"""Number of labels listed in a line."""
PLAIN = re.compile(r"(0|[-+]?[1-9][0-9]*)(\.0)?")
"""Whole numbers; `.0` as pandas writes them where values are missing."""


def first_of(names: Sequence[str]) -> str:
    """The first names, for a line."""
    return ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")


def read_classes(values: np.ndarray, names: Sequence[str] = (), classes: int | None = None) -> Targets:
    """Class numbers int64 [n] from values [n], or one-hot rows [n, C].

    names: of the classes, in the order of their numbers. classes: their number, if set. Labels with gaps or not from 0
    are numbered in ascending order, unless names or number are given. Raises TargetError for an invalid row.
    """
    if values.ndim > 1:
        return _one_hot(values, names, classes)
    if values.dtype.kind in "US":
        return _texts(values, names, classes)
    if values.dtype.kind == "f" and len(broken := np.flatnonzero(values != np.floor(values))):
        raise TargetError(int(broken[0]), f"label {values[broken[0]]:g} is not a whole number")
    check_size(values)
    return _integer_targets(values.astype(np.int64), names, classes, values.dtype.kind == "b")


def check_size(values: np.ndarray) -> None:
    """Raises TargetError for integers too large for int64."""
    if values.dtype.kind in "uf" and len(high := np.flatnonzero(abs(values.astype(np.float64)) >= 2.0**63)):
        raise TargetError(int(high[0]), f"label {values[high[0]]} is too large for a class")


def plain_numbers(texts: Iterable[str]) -> list[int] | None:
    """The numbers of texts that are plain whole numbers, each in one spelling; None for other texts."""
    texts = [*texts]
    if not all(map(PLAIN.fullmatch, texts)):
        return None
    numbers = [int(text.removesuffix(".0")) for text in texts]
    return numbers if len({*numbers}) == len({*texts}) else None


def in_order(texts: Iterable[str]) -> list[str]:
    """The different texts in the order of numbers if all are plain whole numbers, else in that of texts."""
    different = sorted({*texts})
    numbers = plain_numbers(different)
    return different if numbers is None else [text for _, text in sorted(zip(numbers, different, strict=True))]


def rows_of_bits(values: np.ndarray) -> np.ndarray:
    """Which targets are rows of 0 and 1, bool [n]."""
    return (values.ndim == 2) & ((values == 0) | (values == 1)).reshape(len(values), -1).all(axis=1)


def require_bits(values: np.ndarray, task: str) -> None:
    """Raises ConfigError for targets that are not rows of 0 and 1."""
    if values.dtype.kind in "US":
        raise ConfigError(
            f"the targets are {list(values.shape[1:])} texts for each sample; data.task = {task} needs one class, or a "
            "row of 0 and 1"
        )
    if not (bits := rows_of_bits(values)).all():
        row = int(np.flatnonzero(~bits)[0])
        raise TargetError(row, f"target {values[row].tolist()} is not a row of 0 and 1, which data.task = {task} needs")


def _one_hot(values: np.ndarray, names: Sequence[str], classes: int | None) -> Targets:
    require_bits(values, "classification")
    several = np.flatnonzero(values.sum(axis=1) != 1)
    if len(several):
        raise TargetError(int(several[0]), "several labels, or none; --task multilabel takes them")
    count = values.shape[1]
    if classes not in (None, count):
        raise ConfigError(f"data.classes = {classes}: the targets are one-hot rows of {count}; leave it out")
    return Targets(values.argmax(axis=1), classes=count, names=of_each(names, count))


def _texts(values: np.ndarray, names: Sequence[str], classes: int | None) -> Targets:
    """Class names, in the declared order or in that of those that occur (of numbers, if all are whole numbers)."""
    distinct, compact = np.unique(values, return_inverse=True)
    if values.dtype.kind == "U" and (numbers := plain_numbers(distinct.tolist())):
        order = np.argsort(np.array(numbers, object))
        distinct, compact = distinct[order], np.argsort(order)[compact.reshape(-1)]
    if not names:
        if classes not in (None, len(distinct)):
            raise ConfigError(
                f"data.classes = {classes}: the targets are {len(distinct)} texts; leave it out, or give the data set "
                "`classes`, the names of all"
            )
        return _compact(distinct, compact)
    if classes not in (None, len(names)):
        raise ConfigError(f"data.classes = {classes}: the data set names {len(names)} classes; leave it out")
    if len(unknown := np.setdiff1d(distinct, names)):
        row = int(np.flatnonzero(values == unknown[0])[0])
        raise TargetError(row, f"label {str(unknown[0])!r} is none of the classes {_list_names(tuple(names))}")
    places = np.array([names.index(name) for name in distinct.tolist()])
    return Targets(places[compact.reshape(-1)], classes=len(names), names=tuple(names), labels=tuple(names))


def _integer_targets(values: np.ndarray, names: Sequence[str], classes: int | None, booleans: bool) -> Targets:
    """The declared classes, or those that occur."""
    count = classes or len(names)
    if count:
        low, high = np.flatnonzero(values < 0), np.flatnonzero(values >= count)
        if len(low):
            raise TargetError(int(low[0]), f"label {values[low[0]]} is outside the class range; 0 to {count - 1}")
        if len(high):
            hint = "" if classes else f" ({count} class names are given; data.classes sets another number)"
            raise TargetError(
                int(high[0]), f"label {values[high[0]]} is outside the class range; 0 to {count - 1}{hint}"
            )
        return Targets(values, classes=count, names=of_each(names, count))
    distinct, compact = np.unique(values, return_inverse=True)
    if booleans:
        named = tuple(str(bool(value)) for value in distinct)
        return Targets(compact.reshape(-1), classes=len(distinct), names=named)
    if np.array_equal(distinct, np.arange(len(distinct))):
        return Targets(values, classes=len(distinct))
    return _compact(distinct, compact)


def _compact(distinct: np.ndarray, compact: np.ndarray) -> Targets:
    """Labels with gaps, not from 0, or of text: classes in ascending order of the labels."""
    names = tuple(map(str, distinct))
    dense = distinct.dtype.kind == "i" and len(distinct) > 2 and distinct[-1] - distinct[0] == len(distinct) - 1
    shown = f"{names[0]} to {names[-1]}" if dense else _list_names(names)
    remarks = (f"labels {shown} are classes 0 to {len(names) - 1}",) if distinct.dtype.kind == "i" else ()
    return Targets(compact.reshape(-1).astype(np.int64), "", len(names), names, names, remarks)


def _list_names(names: Sequence[str]) -> str:
    if len(names) <= NAMES_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[: NAMES_SHOWN // 2])}, ... {', '.join(names[-2:])}"
