"""The page of a reproduced experiment: our numbers next to the paper's."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from scipy import stats

from fedbench.report import typeset
from fedbench.report.parts import ChartSection, charts
from fedbench.report.study import POINT_NAMES
from fedbench.report.template import page_of
from fedbench.report.theme import LIGHT, axis, figure
from fedbench.report.typeset import Cell
from fedbench.results.files import write_atomically
from fedbench.results.quantities import plural
from fedbench.results.tables import REFERENCES
from fedbench_papers.tables.figure_page import figure_text, write_figure
from fedbench_papers.tables.heat import heat_maps
from fedbench_papers.tables.reproduction import ComparedNumber, ComparedTrace, ReproductionRecord

HEADS = ("cell", "method", "published", "ours", "difference", "in standard errors", "seeds", "point", "scored by")
TRACED_HEADS = ("cell", "method", "what", "table", "published", "ours", "difference", "seeds")
TEMPLATE = Path(__file__).with_name("published.html.j2")
FEWEST_METHODS = 3
"""Least number of methods whose orders can agree by more than chance."""


def write_published(folder: Path) -> Path:
    """Writes report.html, table.csv, table.md, table.tex, and traced.csv if the paper counts what runs trace."""
    made = ReproductionRecord.read(folder)
    if made.figure is not None:
        return write_figure(made, folder)
    found = made.compare_numbers(folder)
    table = [line(one) for one in found]
    write_atomically(folder / "table.csv", reproduction_frame(found).to_csv(index=False))
    write_atomically(folder / "table.md", typeset.markdown(HEADS, table) + "\n")
    write_atomically(folder / "table.tex", typeset.latex(HEADS, table))
    traced = made.compare_traces(folder)
    if traced:
        write_atomically(folder / "traced.csv", traced_frame(traced).to_csv(index=False))
    write_atomically(folder / "report.html", page_of(TEMPLATE, **reproduction_values(made, found, traced)))
    return folder / "report.html"


def with_sign(value: float, digits: int) -> str:
    """A number with its sign."""
    return f"{value:+.{digits}f}".replace("-", typeset.MINUS)


def line(one: ComparedNumber) -> list[Cell]:
    """A published number as text."""
    published = f"{one.published:.2f}" + ("" if one.deviation is None else f" ± {one.deviation:.2f}")
    ours = "" if one.ours is None else f"{one.ours.mean:.2f}"
    ours += "" if one.ours is None or one.ours.half is None else f" ± {one.ours.half:.2f}"
    return list(
        map(
            Cell,
            (
                one.cell,
                one.method,
                published,
                ours or "not run",
                "" if one.difference is None else with_sign(one.difference, 2),
                "" if one.errors is None else with_sign(one.errors, 1),
                "" if one.ours is None else str(len(one.ours.values)),
                POINT_NAMES.get(one.point, ""),
                one.scored,
            ),
        )
    )


def traced_line(one: ComparedTrace) -> list[Cell]:
    """A published count as text."""
    ours = "not run" if one.ours is None else f"{one.ours.mean:.6g}"
    ours += "" if one.ours is None or one.ours.half is None else f" ± {one.ours.half:.2g}"
    difference = "" if one.ours is None else f"{one.ours.mean - one.published:+.3g}".replace("-", typeset.MINUS)
    seeds = "" if one.ours is None else str(len(one.ours.values))
    texts = (one.cell, one.method, one.what, one.table, f"{one.published:.6g}", ours, difference, seeds)
    return list(map(Cell, texts))


def traced_frame(traced: Sequence[ComparedTrace]) -> pd.DataFrame:
    """The counts, in the paper's unit."""
    return pd.DataFrame(
        [
            {
                **{name: getattr(one, name) for name in ("cell", "method", "what", "table", "published")},
                "ours": one.ours and one.ours.mean,
                "low": one.ours and one.ours.low,
                "high": one.ours and one.ours.high,
                "seeds": len(one.ours.values) if one.ours else 0,
            }
            for one in traced
        ]
    )


def reproduction_text(folder: Path) -> str:
    """The tables and the answer for a terminal."""
    made = ReproductionRecord.read(folder)
    if made.figure is not None:
        return figure_text(made, folder)
    found, traced = made.compare_numbers(folder), made.compare_traces(folder)
    counts = [typeset.plain_table(TRACED_HEADS, list(map(traced_line, traced)))] if traced else []
    return "\n".join([typeset.plain_table(HEADS, list(map(line, found))), *counts, reproduction_answer(made, found)])


def reproduction_frame(found: Sequence[ComparedNumber]) -> pd.DataFrame:
    """The numbers, in percent and points."""
    return pd.DataFrame(
        [
            {
                "cell": one.cell,
                "method": one.method,
                "table": one.table,
                "published": one.published,
                "published_sd": one.deviation,
                "ours": one.ours and one.ours.mean,
                "low": one.ours and one.ours.low,
                "high": one.ours and one.ours.high,
                "seeds": len(one.ours.values) if one.ours else 0,
                "difference": one.difference,
                "standard_errors": one.errors,
                "point": one.point,
                "scored_by": one.scored,
            }
            for one in found
        ]
    )


def reproduction_answer(made: ReproductionRecord, found: Sequence[ComparedNumber]) -> str:
    """The result in one sentence."""
    run = [one for one in found if one.difference is not None]
    if not run:
        return f"Nothing of {made.id} has been run yet."
    away = fmean(abs(one.difference) for one in run if one.difference is not None)
    near = [one for one in run if one.errors is not None and abs(one.errors) <= 2]
    known = [one for one in run if one.errors is not None]
    said = f"{plural(len(run), 'number')} of {made.id} reproduced: on average {away:.1f} points from the paper's"
    return said + (f", {len(near)} of {len(known)} within two standard errors." if known else ".")


def orders(found: Sequence[ComparedNumber]) -> list[str]:
    """The agreement of the order of methods with the paper's, by cell."""
    said = []
    for name, own in groupby(found, key=lambda one: one.cell):
        run = [one for one in own if one.ours is not None and one.method not in REFERENCES]
        if len(run) >= FEWEST_METHODS:
            tau = stats.kendalltau([one.published for one in run], [one.ours.mean for one in run if one.ours])
            order = f"Kendall's tau between the paper's order and ours is {tau.statistic:.2f} (p = {tau.pvalue:.2f})"
            said.append(f"{name}: {order}.")
    return said


def departures(made: ReproductionRecord) -> list[str]:
    """The differences from the paper's protocol."""
    said = ", ".join(f"{key} = {value}" for key, value in made.changed.items())
    return [f"Unlike the paper: {said}."] if said else []


def agreement_figure(found: Sequence[ComparedNumber]) -> go.Figure | None:
    """Our numbers against the paper's, one point each; on the line they agree."""
    run = [one for one in found if one.ours is not None]
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


def reproduction_values(
    made: ReproductionRecord, found: Sequence[ComparedNumber], traced: Sequence[ComparedTrace]
) -> dict[str, Any]:
    """The values of the template."""
    made_small = "The scale is small: only signs and orders mean something, levels do not."
    intro = "A point is a number of the paper; on the line both agree. Bars: half of our 95 % interval over seeds."
    maps = "Test accuracy in %. Each map has colours of its own, from its lowest to its highest number."
    parts = [
        ChartSection(
            "against", "Ours against the paper's", charts(("against", "", agreement_figure(found), "")), intro
        ),
        ChartSection("heat", "Accuracy over two options", heat_maps(found), maps),
    ]
    return {
        "kind": "reproduce",
        "title": made.id,
        "asked": f"{made.what}; scale {made.scale}",
        "answer": reproduction_answer(made, found),
        "besides": [*([made_small] if made.scale == "small" else []), *departures(made), *orders(found)],
        "heads": HEADS,
        "lines": [line(one) for one in found],
        "traced_heads": TRACED_HEADS,
        "traced": list(map(traced_line, traced)),
        "pages": [(cell.name, f"{cell.path}/report.html") for cell in made.cells],
        "parts": [part for part in parts if part.charts],
        "open": made.open,
    }
