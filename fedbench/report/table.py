"""Tables: columns over rows, and one value that a page, a terminal, Markdown, LaTeX and CSV show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pandas as pd

from fedbench.report import typeset
from fedbench.report.typeset import Cell

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table; showing one more metric takes one more of them.

    title: its head; "" if only files have it. value: of a row, or None. form: how a value is shown; a column that shows
    nothing is hidden. name: in CSV; "" if CSV lacks it. numbers: what CSV has of a value under the name. note: what the
    legend says of it while it is shown. is_optional: CSV has it only where a value is known.
    """

    title: str
    value: Callable[[Row], Any]
    form: Callable[[Any], str] = str
    name: str = ""
    note: str = ""
    numbers: Callable[[str, Any], dict[str, Any]] = lambda name, value: {name: value}
    is_optional: bool = False

    def cell(self, row: Row) -> Cell:
        value = self.value(row)
        return value if isinstance(value, Cell) else Cell("" if value is None else self.form(value))


@dataclass(frozen=True)
class Table:
    """What is shown in rows. left: its first columns, which hold words and stay if they are empty.

    title: the caption; notes: sentences under it; name: its label in LaTeX; numbers: for CSV.
    """

    heads: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    left: int = 1
    title: str = ""
    notes: Sequence[str] = ()
    name: str = ""
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def of(cls, columns: Sequence[Column[Row]], rows: Sequence[Row], least: int = 2) -> "Table":
        """The columns that have a text in some row, and the first `least` ones, with the notes of those shown."""
        named = [column for column in columns if column.title]
        filled = [(column, [column.cell(row) for row in rows]) for column in named]
        shown = [(c, cells) for i, (c, cells) in enumerate(filled) if i < least or any(cell.text for cell in cells)]
        lines = [list(line) for line in zip(*(cells for _, cells in shown), strict=True)]
        return cls([column.title for column, _ in shown], lines, notes=[c.note for c, _ in shown if c.note])

    def plain(self) -> str:
        return typeset.plain_table(self.heads, self.lines)

    def markdown(self) -> str:
        return typeset.markdown(self.heads, self.lines)

    def latex(self) -> str:
        return typeset.latex(self.heads, self.lines)

    def typeset(self, form: str) -> str:
        """With caption and note, as latex, markdown or csv."""
        if form == "csv":
            return str(self.numbers.to_csv(index=False))
        heads, lines = typeset.without_empty_columns(self.heads, self.lines, self.left)
        note = " ".join(f"{said.rstrip('.')}." for said in self.notes if said)
        if form == "markdown":
            shown = note.replace("*", r"\*")
            return f"{self.title}\n\n{typeset.markdown(heads, lines, self.left)}\n\n{shown}\n"
        return typeset.latex_float(heads, lines, self.left, self.name, self.title, note)


def numbers_of(columns: Sequence[Column[Row]], row: Row) -> dict[str, Any]:
    """What CSV has of a row."""
    numbers: dict[str, Any] = {}
    for column in columns:
        value = column.value(row) if column.name else None
        if column.name and (value is not None or not column.is_optional):
            numbers |= column.numbers(column.name, value)
    return numbers
