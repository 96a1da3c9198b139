"""The result of a study called from Python: a folder, a page, a table and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import pandas as pd

from fedbench.errors import ConfigError
from fedbench.installation import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure
    from plotly.graph_objects import Figure

NONE: Mapping[str, str] = MappingProxyType({})
"""Methods are called by their names in the study."""
TABLES, TEXTS = ("latex", "markdown", "csv"), ("latex", "markdown")
WHATS = {"scores": TABLES, "hyperparameters": TABLES, "ablation": TABLES, "protocol": TEXTS, "bibtex": ("bibtex",)}
"""What is made for a paper besides figures, and the formats of each, the default first."""
ENDINGS = {"tex": "latex", "md": "markdown", "txt": "markdown", "csv": "csv", "bib": "bibtex"}
"""Formats by the end of a file's name."""


def format_for(file: Path, format: str | None) -> str | None:
    """The format of a text in a file: the given one, or as its name ends. Raises ConfigError if these differ."""
    suffix = file.suffix.lower()
    ending = ENDINGS.get(suffix.removeprefix("."))
    if None not in (format, ending) and format != ending and suffix != ".txt":
        raise ConfigError(
            f"format = {format}: the name {file.name} says {ending}; leave it out, or choose another name"
        )
    return format or ending


@dataclass(frozen=True)
class StudyResult:
    """A study in its folder. file: that of its table; None if the table is made of the runs' records."""

    folder: Path
    file: ClassVar[str | None] = "table.csv"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def table(self) -> pd.DataFrame:
        """The study's rows, read on first access."""
        if self.file is not None:
            return pd.read_csv(self.folder / self.file)
        from fedbench.report.study import Study

        return Study.load(self.folder).table

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
    def figure(
        self,
        name: str | None = None,
        backend: Literal["matplotlib"] = ...,
        methods: Sequence[str] | str = (),
        names: Mapping[str, str] = NONE,
        width: float | None = None,
    ) -> "MatplotlibFigure": ...

    def figure(
        self,
        name: str | None = None,
        backend: str = "plotly",
        methods: Sequence[str] | str = (),
        names: Mapping[str, str] = NONE,
        width: float | None = None,
    ) -> "Figure | MatplotlibFigure":
        """A figure of the report, such as `curve-after_agg`, as one of Plotly, or of matplotlib for a paper.

        With matplotlib, name: by default the score over rounds or settings; methods: those that are shown, in this
        order; names: how they are called, `{"fedcac": "FedCAC"}`; width: in inches, by default a column. Raises
        ConfigError for a name or a method that the report lacks.
        """
        from fedbench.report.in_python import figure_of, figure_of_matplotlib

        if backend not in ("plotly", "matplotlib"):
            raise ConfigError(f"backend = {backend}: must be plotly or matplotlib")
        if backend == "matplotlib":
            shown = [methods] if isinstance(methods, str) else methods
            return figure_of_matplotlib(self.folder, name, shown, names, width)[1]
        if name is None or methods or names or width:
            raise ConfigError("backend = plotly: needs a name, and methods, names and width need backend = matplotlib")
        return figure_of(self.folder, name)

    def typeset(
        self,
        what: str = "scores",
        format: str | None = None,
        methods: Sequence[str] | str = (),
        names: Mapping[str, str] = NONE,
        reference: str | None = None,
    ) -> str:
        """A table or a text for a paper.

        what: `scores`, `hyperparameters` or `ablation`, whose format is latex (booktabs), markdown or csv; `protocol`,
        a paragraph in latex or markdown; `bibtex`, the papers of the methods. methods: those that are shown, in this
        order; names: how they are called; reference: the method that marks of significance compare with, by default
        local. Raises ConfigError.
        """
        from fedbench.report.in_python import methods_by_label, require_known

        if what not in WHATS:
            raise ConfigError(f"table = {what}: must be one of {', '.join(WHATS)}")
        legal, methods = WHATS[what], [methods] if isinstance(methods, str) else methods
        if format is not None and format not in legal:
            raise ConfigError(f"format = {format}: {what} is written as {', '.join(legal)}")
        if reference is not None and what != "scores":
            raise ConfigError(f"reference = {reference}: {what} has no marks of a reference; leave it out")
        if what in ("scores", "hyperparameters", "ablation"):
            from fedbench.report.paper import paper_table
            from fedbench.report.paper_notes import Choice

            return paper_table(self.folder, what, Choice(methods, names, reference=reference)).typeset(
                format or legal[0]
            )
        known = methods_by_label(self.folder)
        require_known("methods", methods, [*known])
        require_known("names", [*names], [*known])
        if what == "protocol":
            from fedbench.report.protocol import in_lines, protocol

            if methods:
                raise ConfigError("methods: the protocol is that of all methods; leave it out")
            return in_lines(protocol(self.folder, names), format or legal[0])
        from fedbench.studies.citations import bibtex

        return bibtex(known[label] for label in methods or known)

    def save(
        self,
        file: str | Path,
        what: str | None = None,
        methods: Sequence[str] | str = (),
        names: Mapping[str, str] = NONE,
        **more: Any,
    ) -> Path:
        """Writes a figure into a file that ends in .pdf, .svg or .png, or what `typeset` returns.

        Other ends are .tex, .md, .txt, .csv and .bib. what: of a figure its name; more: as for `figure` and `typeset`.
        Raises ConfigError.

        >>> from fedbench import run
        >>> done = run({"method": "local", "rounds": 2, "resources": {"hosts": 0}})
        >>> done.save("curve.pdf").name, done.save("scores.tex").name
        ('curve.pdf', 'scores.tex')
        """
        file = Path(file)
        kind = file.suffix.removeprefix(".")
        if kind in ENDINGS:
            from fedbench.results.files import write_atomically

            more["format"] = format_for(file, more.get("format"))
            text = self.typeset(what or ("bibtex" if kind == "bib" else "scores"), methods=methods, names=names, **more)
            write_atomically(file, text)
        else:
            require("plots")
            from fedbench.report.in_matplotlib import picture_format, save_picture

            kind = picture_format(file, others=ENDINGS)
            save_picture(self.figure(what, "matplotlib", methods, names, **more), file, kind)
        return file

    def __str__(self) -> str:
        """What `print` shows: the answer, the table, and where the report is."""
        from fedbench.report.in_python import shown_text

        return f"{shown_text(self.folder)}\n\nreport: {self.report}"

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the table, and a link to the report."""
        from fedbench.report.in_python import shown_table

        table = shown_table(self.folder).to_html(index=False, border=0)
        link = f'<a href="{escape(self.report.absolute().as_uri())}">report</a>'
        return f"<p>{escape(self.answer)}</p>{table}<p>{link}</p>"
