"""The page of a reproduced experiment: our numbers next to the paper's, or a figure of our runs."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from statistics import fmean

import pandas as pd
import plotly.graph_objects as go
from scipy import stats

from fedbench.config.words import plural
from fedbench.report.parts import ChartSection, charts
from fedbench.report.study import POINT_NAMES
from fedbench.report.template import page_of
from fedbench.report.theme import LIGHT, axis, figure
from fedbench.report.typeset import Cell
from fedbench.results.files import write_atomically
from fedbench.tasks.metric import MINUS
from fedbench_papers.tables.content import NumberTable, PageContent, interval_columns, ours_text, seeds_text
from fedbench_papers.tables.figure_page import figure_content
from fedbench_papers.tables.heat import heat_maps
from fedbench_papers.tables.reproduction import ComparedNumber, ComparedTrace, ReproductionRecord

HEADS = ("cell", "method", "published", "ours", "difference", "in standard errors", "seeds", "point", "scored by")
TRACED_HEADS = ("cell", "method", "what", "table", "published", "ours", "difference", "seeds")
TEMPLATE = Path(__file__).with_name("reproduction.html.j2")
FEWEST_METHODS = 3
"""Least number of methods whose orders can agree by more than chance."""


def write_published(folder: Path) -> Path:
    """Writes report.html and the files of its tables: table.csv, .md, .tex, and traced.csv if runs trace numbers."""
    made = ReproductionRecord.read(folder)
    shown = content_of(made, folder)
    for table in shown.tables:
        table.write(folder)
    page = page_of(
        TEMPLATE,
        kind="reproduce",
        title=made.id,
        asked=f"{made.what}; scale {made.scale}",
        answer=shown.answer,
        besides=[*departures(made), *shown.besides],
        tables=shown.tables,
        parts=[part for part in shown.parts if part.charts],
        charts_first=shown.charts_first,
        pages=[(cell.name, f"{cell.path}/report.html") for cell in made.cells if not cell.public],
        open=made.open,
    )
    write_atomically(folder / "report.html", page)
    return folder / "report.html"


def reproduction_text(folder: Path) -> str:
    """The tables and the answer for a terminal."""
    return content_of(ReproductionRecord.read(folder), folder).text()


def content_of(made: ReproductionRecord, folder: Path) -> PageContent:
    """What is shown of a figure, or of published numbers."""
    return comparison_content(made, folder) if made.figure is None else figure_content(made, folder)


def departures(made: ReproductionRecord) -> list[str]:
    """The differences from the paper's protocol."""
    lines = []
    if made.scale == "small":
        lines.append("The scale is small: only signs and orders mean something, levels do not.")
    if made.changed:
        lines.append(f"Unlike the paper: {', '.join(f'{key} = {value}' for key, value in made.changed.items())}.")
    for methods, cells in groupby((cell for cell in made.cells if cell.methods), key=lambda cell: cell.methods):
        lines.append(f"Only {', '.join(methods)} asked for in {'; '.join(cell.name for cell in cells)}.")
    return lines


def comparison_content(made: ReproductionRecord, folder: Path) -> PageContent:
    """The paper's numbers and ours, and counts that runs trace if the paper has them."""
    numbers, traced = made.compare_numbers(folder), made.compare_traces(folder)
    maps = "Test accuracy in %. Each map has colours of its own, from its lowest to its highest number."
    return PageContent(
        [comparison_table(numbers), *([traced_table(traced)] if traced else [])],
        [
            ChartSection(
                "against",
                "Ours against the paper's",
                charts(("against", "", agreement_figure(numbers), "")),
                "A point is a number of the paper; on the line both agree. Bars: half of our 95 % interval over seeds.",
            ),
            ChartSection("heat", "Accuracy over two options", heat_maps(numbers), maps),
        ],
        reproduction_answer(made, numbers),
        orders(numbers),
    )


def comparison_table(numbers: Sequence[ComparedNumber]) -> NumberTable:
    """The numbers, in percent and points."""
    frame = pd.DataFrame(
        {
            "cell": one.cell,
            "method": one.method,
            "table": one.table,
            "published": one.published,
            "published_sd": one.deviation,
            **interval_columns(one.ours, "ours"),
            "difference": one.difference,
            "standard_errors": one.errors,
            "point": one.point,
            "scored_by": one.scored,
        }
        for one in numbers
    )
    intro = "Test accuracy in %. Published: ± the paper's deviation. Ours: ± half of the 95\u00a0% interval over seeds."
    lines = [line(one) for one in numbers]
    return NumberTable("table", "Published and own numbers", intro, HEADS, lines, frame, layout="numbers")


def line(one: ComparedNumber) -> list[Cell]:
    """A published number as text."""
    published = f"{one.published:.2f}" + ("" if one.deviation is None else f" ± {one.deviation:.2f}")
    difference = "" if one.difference is None else with_sign(one.difference, ".2f")
    errors = "" if one.errors is None else with_sign(one.errors, ".1f")
    ours, point = ours_text(one.ours, ".2f", ".2f"), POINT_NAMES.get(one.point, "")
    texts = one.cell, one.method, published, ours, difference, errors, seeds_text(one.ours), point, one.scored
    return list(map(Cell, texts))


def traced_table(traced: Sequence[ComparedTrace]) -> NumberTable:
    """The counts, in the paper's unit."""
    frame = pd.DataFrame(
        {
            **{name: getattr(one, name) for name in ("cell", "method", "what", "table", "published")},
            **interval_columns(one.ours, "ours"),
        }
        for one in traced
    )
    intro = (
        "In the paper's unit. Ours: the mean over the clients of the last round, ± half of the 95\u00a0% interval over "
        "seeds."
    )
    lines = [traced_line(one) for one in traced]
    return NumberTable(
        "traced", "Published and traced counts", intro, TRACED_HEADS, lines, frame, ("csv",), layout="counts"
    )


def traced_line(one: ComparedTrace) -> list[Cell]:
    """A published count as text."""
    difference = "" if one.ours is None else with_sign(one.ours.mean - one.published, ".3g")
    ours, published = ours_text(one.ours, ".6g", ".2g"), f"{one.published:.6g}"
    return list(
        map(Cell, (one.cell, one.method, one.what, one.table, published, ours, difference, seeds_text(one.ours)))
    )


def with_sign(value: float, form: str) -> str:
    """A number with its sign, by a format specification."""
    return f"{value:+{form}}".replace("-", MINUS)


def reproduction_answer(made: ReproductionRecord, numbers: Sequence[ComparedNumber]) -> str:
    """The result in one sentence."""
    run = [one for one in numbers if one.difference is not None]
    if not run:
        return f"Nothing of {made.id} has been run yet."
    away = fmean(abs(one.difference) for one in run if one.difference is not None)
    near = [one for one in run if one.errors is not None and abs(one.errors) <= 2]
    known = [one for one in run if one.errors is not None]
    text = f"{plural(len(run), 'number')} of {made.id} reproduced: on average {away:.1f} points from the paper's"
    return text + (f", {len(near)} of {len(known)} within two standard errors." if known else ".")


def orders(numbers: Sequence[ComparedNumber]) -> list[str]:
    """The agreement of the order of methods with the paper's, by cell."""
    lines = []
    for name, compared in groupby(numbers, key=lambda one: one.cell):
        run = [one for one in compared if one.ours is not None and not one.is_reference]
        if len(run) >= FEWEST_METHODS:
            tau = stats.kendalltau([one.published for one in run], [one.ours.mean for one in run if one.ours])
            order = f"Kendall's tau between the paper's order and ours is {tau.statistic:.2f} (p = {tau.pvalue:.2f})"
            lines.append(f"{name}: {order}.")
    return lines


def agreement_figure(numbers: Sequence[ComparedNumber]) -> go.Figure | None:
    """Our numbers against the paper's, one point each; on the line they agree."""
    run = [one for one in numbers if one.ours is not None]
    if not run:
        return None
    both = [value for one in run if one.ours for value in (one.published, one.ours.mean)]
    ends = [min(both) - 2, max(both) + 2]
    halves = [(one.ours.half or 0) if one.ours else 0 for one in run]
    fig = figure(420, xaxis=axis("published accuracy, %", range=ends), yaxis=axis("ours, %", range=ends))
    fig.add_scatter(x=ends, y=ends, mode="lines", line={"color": LIGHT["quiet"], "width": 1}, hoverinfo="skip")
    fig.add_scatter(
        x=[one.published for one in run],
        y=[one.ours.mean for one in run if one.ours],
        error_y={"array": halves, "color": LIGHT["quiet"], "width": 0},
        text=[escape(f"{one.method}, {one.cell}") for one in run],
        mode="markers",
        marker={"color": LIGHT["accent"], "size": 9},
        hovertemplate="%{text}<br>published %{x:.1f}, ours %{y:.1f}<extra></extra>",
    )
    return fig
