"""Chooses the task that all targets look like, unless one is set, and lets it read them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedbench import tasks
from fedbench.data.reading.resolution import check_resolution
from fedbench.data.sentinels import sentinel_remarks
from fedbench.errors import ConfigError, RunError
from fedbench.tasks.class_numbers import check_size, rows_of_bits
from fedbench.tasks.targets import TargetError, Targets

FEW_VALUES = 20
"""Up to this many integer values written as floats are classes by default."""
UNCOUNTED = ("regression", "multilabel")
"""Tasks whose targets have no number of classes."""
REPEATED = 20
"""Integers with gaps that occur at least this often on average are classes by default."""
HIDDEN = (-1, -9, -99, -100, -999)
"""Numbers that stand for a label that is not known, where all others are 0 or more."""
COLUMN_TASKS = ("regression", "binary")
"""Tasks whose targets stay `[n, 1]` if they come so: outputs `[b, 1]` would broadcast against targets `[b]`."""


def read_targets(
    values: np.ndarray, task: str = "auto", names: Sequence[str] = (), classes: int | None = None
) -> Targets:
    """The targets of all rows, as the requested task reads them, or the one that they look like.

    values: integers, floats, booleans or text, [n, ...]. names: of the classes, in the order of their numbers.
    classes: their number, if set. Raises TargetError for an invalid row, and ConfigError if only the user knows the
    meaning of the values.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise TargetError(row, f"target {values[row].tolist()} is not finite; remove such samples or fill them in")
    if task == "regression" and values.dtype.kind == "U":
        values = _written_numbers(values)
    if values.ndim == 2 and values.shape[1] == 1:
        targets = read_targets(values[:, 0], task, names, classes)
        return replace(targets, values=targets.values[:, None]) if targets.task in COLUMN_TASKS else targets
    if task != "auto":
        return read_for_task(task, values, names, classes)
    chosen, remark = _choice(values, bool(names or classes))
    targets = read_for_task(chosen, values, names, classes)
    text = remark.format(count=targets.classes or values[0].size)
    return replace(targets, remarks=(text, *targets.remarks)) if text else targets


def refuse_count(count: int | None, targets: Targets) -> Targets:
    """The targets. Raises ConfigError if data.classes is set and says nothing of them."""
    if count and targets.task in UNCOUNTED:
        raise ConfigError(f"data.classes = {count}: the task {targets.task} has no classes; leave it out")
    return targets


T = TypeVar("T")


def piece_of(pieces: Iterable[tuple[T, int]], row: int) -> tuple[T, int]:
    """The piece with a row, and the number of the row in it. pieces: each with its number of rows."""
    for piece, count in pieces:
        if row < count:
            return piece, row
        row -= count
    raise IndexError(row)


def read_targets_of(
    pieces: Sequence[tuple[str, int]], task: str, names: Sequence[str], classes: int | None, values: np.ndarray
) -> Targets:
    """The targets of files, users and the like, each by its place with its number of rows. Raises ConfigError."""
    try:
        return read_targets(values, task, names, classes)
    except TargetError as error:
        where, row = piece_of(pieces, error.row)
        raise ConfigError(f"{where}, sample {row}: {error}") from None


def read_for_task(task: str, values: np.ndarray, names: Sequence[str] = (), classes: int | None = None) -> Targets:
    """The targets as a task reads them. Raises TargetError and ConfigError, also if a task of the user's fails."""
    reader = tasks.load(task)
    try:
        targets = reader.read_targets(values, names, classes)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"data.task = {task}: read_targets fails: {RunError.of(error)}") from error
    if not isinstance(targets, Targets):
        raise ConfigError(f"data.task = {task}: read_targets must return Targets; it returned {type(targets).__name__}")
    numbers = np.asarray(targets.values)
    if numbers.dtype.kind not in "iuf" or len(numbers) != len(values):
        got = f"{numbers.dtype} {list(numbers.shape)}"
        raise ConfigError(
            f"data.task = {task}: read_targets must keep numbers for all {len(values)} samples; it returned {got}"
        )
    if reader.classes and not targets.classes:
        raise ConfigError(f"data.task = {task}: its targets are classes, but read_targets returned 0 classes")
    if numbers.dtype.kind == "f":
        columns = numbers.reshape(len(numbers), -1)
        called = ["the target"] if numbers.ndim == 1 else [f"target {number}" for number in range(columns.shape[1])]
        check_resolution(f"data.task = {task}", columns, called)
    numbers = np.ascontiguousarray(numbers, np.float32 if numbers.dtype.kind == "f" else np.int64)
    doubts = sentinel_remarks(numbers, "target") if task == "regression" else ()
    return replace(targets, values=numbers, task=task, remarks=(*targets.remarks, *doubts))


def _choice(values: np.ndarray, declared: bool) -> tuple[str, str]:
    """The task that targets look like, and a remark if there was a choice. declared: whether classes are."""
    if values.ndim > 1:
        return _of_rows(values)
    if declared or values.dtype.kind in "Sb":
        return "classification", ""
    if values.dtype.kind == "U":
        return _of_texts(values)
    return _of_floats(values) if values.dtype.kind == "f" else _of_whole(values)


def _written_numbers(values: np.ndarray) -> np.ndarray:
    """The numbers that texts are. Raises TargetError for the first that is none."""
    from fedbench.data.reading.texts import are_numbers, counts_of, form_of, numbers_of  # pandas takes half a second

    counts = counts_of(values.ravel())
    if are_numbers(counts.index):
        return numbers_of(values.ravel()).reshape(values.shape)
    form = form_of(counts)
    wrong = form[1] if form else next(text for text in counts.index if not are_numbers([text]))
    remedy = f"{form[0].called}: {form[0].remedy}" if form else "data.task = regression needs numbers"
    raise TargetError(int(np.argwhere(values == wrong)[0][0]), f"label {wrong!r} is text; {remedy}")


def _of_texts(values: np.ndarray) -> tuple[str, str]:
    """Texts: classes, unless they are numbers in another form, or several labels in one, or hardly repeat."""
    from fedbench.data.reading import texts

    counts, otherwise = texts.counts_of(values), "--task regression if they are numbers"
    numbers = texts.matches(counts.index, texts.NUMBER)
    if guess := texts.form_of(counts):
        form, example = guess
        what = f"{form.called}, such as {example!r}"
        otherwise = f"{form.remedy} for multilabel" if form == texts.JOINED else f"{otherwise}: then {form.remedy}"
    elif numbers.all() and (texts.numbers_of(counts.index) % 1).any():
        what = f"numbers written as text, such as {counts.index[0]!r}"
    elif texts.is_mostly_numbers(counts) and not (
        numbers.all() or texts.matches(counts.index, texts.CODES.pattern).any()
    ):
        what = f"numbers, and texts such as {counts.index[int(numbers.argmin())]!r}"
    elif len(counts) > FEW_VALUES and len(values) < 2 * len(counts):
        what = f"texts that hardly repeat ({len(counts)} different ones in {len(values)} samples)"
    else:
        if numbers.all():
            _refuse_hidden(texts.numbers_of(values))
        return "classification", ""
    raise ConfigError(f"the targets are {what}: set --task classification if they are classes, or {otherwise}")


def _of_floats(values: np.ndarray) -> tuple[str, str]:
    """One float per sample: classes if they are few integers, numbers if they are fractional."""
    if (values != np.floor(values)).any():
        return "regression", ""
    check_size(values)
    different = len(np.unique(values))
    if 2 * different > len(values):
        return "regression", "the targets are whole numbers that hardly repeat: regression"
    if different > FEW_VALUES:
        raise ConfigError(
            f"the targets are floats with {different} different whole values: set --task classification if they are "
            "classes, or --task regression if they are numbers"
        )
    _refuse_hidden(values)
    text = "the targets are whole numbers written as floats and are read as classes; --task regression if they are not"
    return "classification", text


def _of_whole(values: np.ndarray) -> tuple[str, str]:
    """Integers: classes, unless only the user knows."""
    check_size(values)
    _refuse_hidden(values)
    numbers = np.unique(values.astype(np.int64))
    gaps = len(numbers) <= numbers[-1] - numbers[0]
    if len(numbers) > FEW_VALUES and len(values) < (REPEATED if gaps else 2) * len(numbers):
        raise ConfigError(
            f"the targets are whole numbers that hardly repeat ({len(numbers)} different ones in {len(values)} samples"
            "): set --task regression if they are numbers, or --task classification if they are classes"
        )
    return "classification", ""


def _refuse_hidden(labels: np.ndarray) -> None:
    """Raises TargetError if the only negative one of whole numbers may stand for a label that is not known."""
    rows = np.flatnonzero(labels < 0)
    negative = np.unique(labels[rows])
    if len(negative) != 1 or negative[0] not in HIDDEN or np.unique(labels).tolist() == [-1, 1]:
        return
    raise TargetError(
        int(rows[0]),
        f"label {negative[0]:.0f}: remove such samples if it means a hidden label, or set --task classification if it "
        "is a class, or --task regression if it is a number",
    )


def _of_rows(values: np.ndarray) -> tuple[str, str]:
    """Several values per sample: a class as a one-hot row, multiple labels, or numbers."""
    kind, shape = values.dtype.kind, list(values.shape[1:])
    understood = "pass one class, a row of 0 and 1 for several labels at once, or (--task regression) numbers"
    if kind in "US":
        raise ConfigError(f"the targets are {shape} texts for each sample: {understood}")
    otherwise = "--task regression if they are not"
    if rows_of_bits(values).all():
        if (values.sum(axis=1) == 1).all():
            text = "the targets are one-hot rows and are read as {count} classes; "
            return "classification", text + otherwise
        return "multilabel", "the targets are rows of 0 and 1: {count} labels, several at once; " + otherwise
    if kind != "f":
        several = ", or a token at each place (--task next-token)" if len(shape) == 1 else ""
        several = ", or a class at each pixel (--task segmentation)" if len(shape) == 2 else several
        raise ConfigError(f"the targets are {shape} whole numbers for each sample: {understood}{several}")
    if ((values >= 0) & (values <= 1)).all() and np.allclose(values.sum(axis=1), 1, atol=1e-4):
        raise ConfigError(
            "the targets look like shares of classes, which add up to 1: pass the class itself, or set --task "
            "regression if they are numbers to predict"
        )
    return "regression", ""
