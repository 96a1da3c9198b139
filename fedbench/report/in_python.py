"""What a report shows, as objects: the answer, the table, and the figures."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import plotly.graph_objects as go
import plotly.io

from fedbench.errors import ConfigError
from fedbench.report.leaderboard import laid_out, leaderboard
from fedbench.report.matrix import Survey, heads, matrix_answer, matrix_lines, matrix_parts
from fedbench.report.page import parts
from fedbench.report.parts import Chart
from fedbench.report.study import Study
from fedbench.report.verdicts import said_of
from fedbench.results.matrix import is_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def answer_of(folder: Path) -> str:
    """The answer in one sentence. Raises ConfigError if the folder holds no study."""
    if is_matrix(folder):
        return matrix_answer(Survey.load(folder))
    study = Study.load(folder)
    return said_of(study, leaderboard(study))[0]


def shown_table(folder: Path) -> pd.DataFrame:
    """The table of methods as text: rounded, with intervals. Raises ConfigError if the folder holds no study."""
    if is_matrix(folder):
        survey = Survey.load(folder)
        names, lines = heads(survey), matrix_lines(survey)
    else:
        study = Study.load(folder)
        names, lines = laid_out(leaderboard(study), study.metric, study.failures)
    return pd.DataFrame([[cell.text for cell in line] for line in lines], columns=names)


def figure_of(folder: Path, name: str) -> go.Figure:
    """A figure of the report by its name. Raises ConfigError if there is none of this name."""
    return _chosen(_charts(folder), name)


def curves_of_matplotlib(folder: Path, name: str) -> "Figure":
    """The same as a figure of matplotlib. Raises ConfigError if there is none, or if it does not consist of curves."""
    from fedbench.report.in_matplotlib import curves_of, is_curves

    known = _charts(folder)
    if is_curves(figure := _chosen(known, name)):
        return curves_of(figure)
    able = [other for other in known if is_curves(_chosen(known, other))]
    raise ConfigError(
        f"figure = {name}: not drawn by matplotlib; leave backend out, or take one of {', '.join(able) or 'none'}"
    )


def _chosen(known: dict[str, Chart], name: str) -> go.Figure:
    if name not in known:
        raise ConfigError(f"figure = {name}: must be one of {', '.join(known) or 'none so far'}")
    return plotly.io.from_json(known[name].figure)


def figure_names(folder: Path) -> list[str]:
    """The names of the report's figures. Raises ConfigError if the folder holds no study."""
    return [*_charts(folder)]


def _charts(folder: Path) -> dict[str, Chart]:
    if is_matrix(folder):
        found = matrix_parts(Survey.load(folder))
    else:
        study = Study.load(folder)
        found = list(parts(study, leaderboard(study) if study.plan.subject is None else []))
    return {chart.id: chart for part in found for chart in part.charts}
