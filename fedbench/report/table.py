"""Tables: columns over rows, and one value that a page, a terminal, Markdown, LaTeX and CSV show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pandas as pd

from fedbench.report import typeset
from fedbench.report.typeset import Cell, TextLine

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
    """Rows of cells under heads.

    left: its first columns, which hold words. title: the caption; intro: sentences above it on pages, notes: under it;
    name: its label in LaTeX and on pages; groups: the heading on pages under which each line stands, none by default;
    numbers: for CSV.
    """

    heads: Sequence[str]
    lines: Sequence[TextLine]
    left: int = 1
    title: str = ""
    intro: str = ""
    notes: Sequence[str] = ()
    name: str = ""
    groups: Sequence[str] = ()
    numbers: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def of(
        cls, columns: Sequence[Column[Row]], rows: Sequence[Row], least: int = 2, notes: Sequence[str] = (), **more: Any
    ) -> "Table":
        """The columns that have a text in some row, and the first `least` ones.

        notes: stand before those of the columns that are shown. more: of the table.
        """
        named = [column for column in columns if column.title]
        filled = [(column, [column.cell(row) for row in rows]) for column in named]
        shown = [(c, cells) for i, (c, cells) in enumerate(filled) if i < least or any(cell.text for cell in cells)]
        lines = [list(line) for line in zip(*(cells for _, cells in shown), strict=True)]
        texts = [note for note in [*notes, *(column.note for column, _ in shown)] if note]
        return cls([column.title for column, _ in shown], lines, notes=texts, **more)

    @property
    def by_group(self) -> dict[str, list[TextLine]]:
        """The lines under each heading."""
        groups: dict[str, list[TextLine]] = {}
        for group, line in zip(self.groups or [""] * len(self.lines), self.lines, strict=True):
            groups.setdefault(group, []).append(line)
        return groups

    def plain(self) -> str:
        return typeset.plain_table(self.heads, self.lines, self.left)

    def markdown(self) -> str:
        return typeset.markdown(self.heads, self.lines, self.left)

    def latex(self) -> str:
        return typeset.latex(self.heads, self.lines, self.left)

    def typeset(self, form: str) -> str:
        """With caption and note, as latex, markdown or csv."""
        if form == "csv":
            return str(self.numbers.to_csv(index=False))
        note = " ".join(f"{line.rstrip('.')}." for line in self.notes)
        if form == "markdown":
            shown = note.replace("*", r"\*")
            return f"{self.title}\n\n{self.markdown()}\n\n{shown}\n"
        return typeset.latex_float(self.heads, self.lines, self.left, self.name, self.title, note)


def numbers_of(columns: Sequence[Column[Row]], row: Row) -> dict[str, Any]:
    """The cells of a row in CSV, by column."""
    numbers: dict[str, Any] = {}
    for column in columns:
        value = column.value(row) if column.name else None
        if column.name and (value is not None or not column.is_optional):
            numbers |= column.numbers(column.name, value)
    return numbers
