"""What the page of a table or of a figure shows: numbers as text and as data, charts, and an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.report import typeset
from fedbench.report.parts import ChartSection
from fedbench.report.typeset import Cell
from fedbench.results.files import write_atomically
from fedbench.results.statistics import Interval


@dataclass(frozen=True)
class NumberTable:
    """A table of a page. lines: its numbers as text; frame: the same as data. name: of its section and of its files;
    kinds: of its files; layout: its class in the template's style.
    """

    name: str
    title: str
    intro: str
    heads: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    frame: pd.DataFrame
    kinds: tuple[str, ...] = ("csv", "md", "tex")
    layout: str = ""

    @property
    def files(self) -> list[str]:
        return [f"{self.name}.{kind}" for kind in self.kinds]

    def write(self, folder: Path) -> None:
        """Writes its files."""
        texts = {
            "csv": self.frame.to_csv(index=False),
            "md": typeset.markdown(self.heads, self.lines) + "\n",
            "tex": typeset.latex(self.heads, self.lines),
        }
        for kind, file in zip(self.kinds, self.files, strict=True):
            write_atomically(folder / file, texts[kind])


@dataclass(frozen=True)
class PageContent:
    """tables, parts: with charts, which come after the tables or first. answer: a sentence; besides: further ones.
    drawn: what the charts show, for a terminal that has none.
    """

    tables: Sequence[NumberTable]
    parts: Sequence[ChartSection]
    answer: str
    besides: Sequence[str] = ()
    drawn: str = ""
    charts_first: bool = False

    def text(self) -> str:
        """The tables and the answer for a terminal."""
        tables = [typeset.plain_table(table.heads, table.lines) for table in self.tables]
        return "\n".join(filter(None, [*tables, self.drawn, self.answer]))


def ours_text(ours: Interval | None, mean: str, half: str) -> str:
    """`91.2 ± 0.8` by two format specifications, or `not run`."""
    return "not run" if ours is None else typeset.with_half(ours, f"{{:{mean}}}".format, f"{{:{half}}}".format)


def seeds_text(ours: Interval | None) -> str:
    """The number of seeds."""
    return "" if ours is None else str(len(ours.values))


def interval_columns(ours: Interval | None, mean: str) -> dict[str, Any]:
    """The columns of our number, the mean under this name; empty where nothing was run."""
    ends = {name: getattr(ours, name, None) for name in ("mean", "low", "high")}
    return {mean: ends["mean"], "low": ends["low"], "high": ends["high"], "seeds": len(ours.values) if ours else 0}
