"""The result of a study called from Python: a folder, a page, a table and figures."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, overload

import pandas as pd

from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class StudyResult:
    """A study in its folder."""

    folder: Path
    file: ClassVar[str] = "table.csv"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def table(self) -> pd.DataFrame:
        """The study's rows, read on first access."""
        return pd.read_csv(self.folder / self.file)

    @property
    def answer(self) -> str:
        """The report's answer in one sentence."""
        from fedbench.report.in_python import answer_of

        return answer_of(self.folder)

    @property
    def figures(self) -> list[str]:
        """The names of the report's figures."""
        from fedbench.report.in_python import figure_names

        return figure_names(self.folder)

    @overload
    def figure(self, name: str, backend: Literal["plotly"] = "plotly") -> "Figure": ...

    @overload
    def figure(self, name: str, backend: Literal["matplotlib"]) -> "MatplotlibFigure": ...

    def figure(self, name: str, backend: str = "plotly") -> "Figure | MatplotlibFigure":
        """A figure of the report, such as `curve-after_agg`, as one of Plotly or of matplotlib (curves only).

        Raises ConfigError for a name that the report lacks, and for a figure that the backend cannot draw.
        """
        from fedbench.report.in_python import curves_of_matplotlib, figure_of

        if backend not in ("plotly", "matplotlib"):
            raise ConfigError(f"backend = {backend}: must be plotly or matplotlib")
        return figure_of(self.folder, name) if backend == "plotly" else curves_of_matplotlib(self.folder, name)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the table, and a link to the report."""
        from fedbench.report.in_python import shown_table

        table = shown_table(self.folder).to_html(index=False, border=0)
        link = f'<a href="{escape(self.report.absolute().as_uri())}">report</a>'
        return f"<p>{escape(self.answer)}</p>{table}<p>{link}</p>"
