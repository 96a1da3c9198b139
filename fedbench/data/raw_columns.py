"""The columns of a table as its author has them, and what their cells become in a sample."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

CellKind = Literal["number", "truth", "category", "list"]


@dataclass(frozen=True)
class RawColumn:
    """A column of a table. kind: of its cells; list: of numbers.

    features: the names of the numbers that a cell becomes. categories: the texts of which each has a feature. merged:
    whether texts that differ in case or in blanks alone are one. lacks_some: whether values are missing, which the last
    feature tells; a number that is missing is NaN.
    """

    name: str
    kind: CellKind
    features: tuple[str, ...]
    categories: tuple[str, ...] = ()
    merged: bool = False
    lacks_some: bool = False

    @classmethod
    def from_json(cls, column: dict[str, Any]) -> "RawColumn":
        """The column that `as_json` has written."""
        names = {key: tuple(column.get(key, ())) for key in ("features", "categories")}
        return cls(**{**column, **names})

    def as_json(self) -> dict[str, Any]:
        """The column without what is as usual."""
        column = {"name": self.name, "kind": self.kind, "features": [*self.features]}
        more = {"categories": [*self.categories], "merged": self.merged, "lacks_some": self.lacks_some}
        return column | {key: value for key, value in more.items() if value}


def feature_names(columns: Iterable[RawColumn]) -> tuple[str, ...]:
    """The names of a sample's numbers, in their order."""
    return tuple(name for column in columns for name in column.features)


def void_places(columns: Iterable[RawColumn]) -> tuple[int, ...]:
    """The places in a sample of numbers that may be missing, NaN."""
    may_be_nan = [
        column.lacks_some and column.kind != "category" and name == column.features[0]
        for column in columns
        for name in column.features
    ]
    return tuple(place for place, own in enumerate(may_be_nan) if own)
