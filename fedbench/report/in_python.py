"""The content of a report as objects: the answer, the table, and the figures."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go
import plotly.io

from fedbench.errors import ConfigError
from fedbench.installation import require
from fedbench.report.answer import answer
from fedbench.report.boards import score_tables
from fedbench.report.page import chart_sections
from fedbench.report.parts import Chart, ChartSection
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.typeset import ShownMethods

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE: Mapping[str, str] = MappingProxyType({})
"""No names of one's own."""
SCORES_OVER = ("over-", "curve")
"""How the names of figures begin that show the score over settings or rounds."""


WRITTEN_WITH_RESULTS = ("plan.json", "matrix.json", "metrics.jsonl", "clients.parquet", "report.html")
"""Files of a study of which at least one is written anew with every further result."""


def answer_of(folder: Path) -> str:
    """The answer in one sentence. Raises ConfigError if the folder holds no study."""
    return answer(SettingsStudy.load(folder))


def shown_table(folder: Path) -> pd.DataFrame:
    """The table of methods as text: rounded, with intervals. Raises ConfigError if the folder holds no study."""
    table = score_tables(SettingsStudy.load(folder))[0]
    return pd.DataFrame([[cell.text for cell in line] for line in table.lines], columns=list(table.heads))


def shown_text(folder: Path) -> str:
    """The answer and the table of methods for a terminal. Raises ConfigError if the folder holds no study."""
    survey = SettingsStudy.load(folder)
    return f"{answer(survey)}\n\n{score_tables(survey)[0].plain()}"


def figure_of(folder: Path, name: str) -> go.Figure:
    """A figure of the report by its name. Raises ConfigError if there is none of this name."""
    return _figure(_charts(folder)[0], name)


def figure_of_matplotlib(
    folder: Path,
    name: str | None = None,
    methods: Sequence[str] = (),
    names: Mapping[str, str] = NONE,
    width: float | None = None,
) -> tuple[str, "Figure", str]:
    """The name of a figure, the figure as matplotlib's, for a paper, and what it shows in words.

    name: by default the score over rounds or settings. methods: those that are shown, in this order; names: how they
    are called; width: in inches. Raises ConfigError if there is no such figure or method.
    """
    require("plots")
    from fedbench.report.in_matplotlib import COLUMN, in_matplotlib

    known, labels = _charts(folder, methods)
    require_known("methods", methods, labels)
    require_known("names", [*names], labels)
    name = name or next((n for n in (*known, "") if n.startswith(SCORES_OVER)), "") or next(iter(known), "")
    figure = in_matplotlib(_figure(known, name), ShownMethods(methods, names, labels), width or COLUMN)
    part, chart = known[name]
    return name, figure, " ".join(filter(None, (chart.caption, "" if chart.apart else part.intro)))


def require_known(key: str, names: Sequence[str], labels: Sequence[str]) -> None:
    """Raises ConfigError if something is asked for that the study lacks."""
    if unknown := next((label for label in names if label not in labels), None):
        raise ConfigError(f"{key}: {unknown}: not in this study; it has {', '.join(labels) or 'no results yet'}")


def methods_by_label(folder: Path) -> dict[str, str]:
    """The method of every label in a study. Raises ConfigError if the folder holds none."""
    studies = SettingsStudy.load(folder).studies.values()
    runs = {label: run for study in studies for label, run in study.runs.items()}
    return {label: str((run.config().get("method") or {}).get("name") or label) for label, run in runs.items()}


def figure_names(folder: Path) -> list[str]:
    """The names of the report's figures. Raises ConfigError if the folder holds no study."""
    return [*_charts(folder)[0]]


Charts = dict[str, tuple[ChartSection, Chart]]


def _figure(known: Charts, name: str) -> go.Figure:
    if name not in known:
        raise ConfigError(f"figure = {name}: must be one of {', '.join(known) or 'none so far'}")
    return plotly.io.from_json(known[name][1].figure)


def _charts(folder: Path, first: Sequence[str] = ()) -> tuple[Charts, list[str]]:
    """The charts with their sections by name, and the labels of all methods."""
    files = [path for path in (folder / name for name in WRITTEN_WITH_RESULTS) if path.is_file()]
    return _charts_then(folder, tuple(first), tuple(path.stat().st_mtime_ns for path in files))


@lru_cache(maxsize=4)
def _charts_then(folder: Path, first: tuple[str, ...], written: tuple[int, ...]) -> tuple[Charts, list[str]]:
    """written: when the study's files were, because making all charts for each figure would take seconds."""
    survey = SettingsStudy.load(folder, first)
    return {chart.id: (part, chart) for part in chart_sections(survey) for chart in part.charts}, survey.known
