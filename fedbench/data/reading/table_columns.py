"""The roles of a table's columns: target, user, beside, features or left out, by its options."""

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from fedbench.data.raw_columns import CellKind, RawColumn
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.cells import looks_like_numbers
from fedbench.data.reading.keys import NamedParts
from fedbench.data.reading.spelling import SpellingOption
from fedbench.errors import open_decision

AXES = ("x", "z")
"""Names beside which `y` may be a measurement."""


class TableOptions(SpellingOption):
    label: str | None = Field(None, description="target column (default: the one that looks like it)")
    user: str | None = Field(
        None, description="column with the user of each row (default: the one that looks like it, if any)"
    )
    drop: list[str] = Field([], description="columns to omit")
    numbers: list[str] = Field([], description="columns that are numbers, whatever they look like")
    categories: list[str] = Field(
        [],
        description="columns that are categories, whatever they look like (the target or user: texts such as NA, too)",
    )
    impute: Literal["none", "median"] = Field(
        "none",
        description="missing values of features: refused, or the median of the client's training samples (of texts a "
        "category of their own), with a column of 0 and 1 for what was missing",
    )


class Roles(NamedTuple):
    """The names of columns by what they are. features: in their order; out: left out."""

    label: str
    user: str | None
    beside: Beside
    features: list[str]
    out: list[str]

    @property
    def read(self) -> list[str]:
        return [*dict.fromkeys(filter(None, [self.label, self.user, *self.beside, *self.features]))]


class Features(NamedTuple):
    """The features of one column, [rows, d], and their names. kind: of its cells.

    categories: the texts with a feature each. void: how many rows have none; the last feature tells them.
    """

    values: np.ndarray
    names: list[str]
    kind: CellKind = "number"
    categories: tuple[str, ...] = ()
    void: int = 0

    @property
    def category(self) -> bool:
        return self.kind == "category"

    def among(self, filled: np.ndarray, name: str) -> "Features":
        """The features with void rows too: NaN there, or 0 of a category. filled: bool [rows]; name: of the column."""
        values = np.full((len(filled), len(self.names) + 1), 0 if self.category else np.nan, np.float32)
        values[filled, :-1] = self.values
        values[:, -1] = ~filled
        return self._replace(values=values, names=[*self.names, f"{name} missing"], void=int((~filled).sum()))

    def raw(self, name: str, merged: bool) -> RawColumn:
        """The column of this name as its author has it. merged: whether spellings of a text are one."""
        lacks_some, merged = self.void > 0, merged and self.category
        return RawColumn(name, self.kind, tuple(self.names), self.categories, merged, lacks_some)


def columns_of(where: str, table: pd.DataFrame, options: TableOptions) -> tuple[str, str | None]:
    """The columns of target and user. Raises ConfigError."""
    names = [name for name in table.columns if name not in options.drop]
    hint = " (and --data.drop the other, unless it is a feature)"
    columns = NamedParts(names, where, "column", hint)
    user, label = columns.find("user", options.user), columns.require("label", options.label)
    axes = [name for name in names if name.casefold() in AXES and looks_like_numbers(table[name])]
    others = [name for name in names if name not in (label, user, *axes)]
    if label.casefold() == "y" and not options.label and axes and others and looks_like_numbers(table[label]):
        other = next((name for name in others if not looks_like_numbers(table[name])), others[0])
        raise open_decision(
            where,
            f"column {label} stands beside {' and '.join(axes)}",
            {
                f"--data.label {label}": "the target",
                f"--data.label {other}": f"a measurement, and {other} is the target",
            },
        )
    return label, user
