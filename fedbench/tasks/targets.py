"""Targets as a task needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Targets:
    """What a task has read.

    values: whole numbers or floats [n, ...], kept as int64 and float32; class numbers [n] if `classes`. task: its name,
    filled in by its reader. classes: the number of classes if every sample is of one, else 0. names: of the classes, or
    of the labels of a multilabel task. labels: the original label of each class, if it is not the class number.
    remarks: how the targets were read, if there was a choice. outputs: a network's scores for each position, if they
    are neither `classes` nor the numbers of a target.
    """

    values: "Array"
    task: str = ""
    classes: int = 0
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    outputs: int = 0


class TargetError(ConfigError):
    """An error in the target of a row, whose place the source knows."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def of_each(names: Sequence[str], count: int) -> tuple[str, ...]:
    """The names, if there is one for each."""
    return tuple(names) if len(names) == count else ()


def check_numbers(values: "Array", task: str) -> None:
    """Raises TargetError for text."""
    if values.dtype.kind not in "biuf":
        raise TargetError(0, f"label {str(values.flat[0])!r} is text; data.task = {task} needs numbers")
