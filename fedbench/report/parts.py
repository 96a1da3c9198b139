"""Report sections with charts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from fedbench.config.words import plural

MOST_CURVES_NAMED = 8
"""Maximum number of curves whose ends are described."""
LEAST_CHOSEN = 3
"""Minimum number of methods among which a reader can choose."""


@dataclass
class Chart:
    """A figure as JSON, `height` pixels high; `words` describe it; `wide` charts take a whole row.

    method: of which it is the only one, so that the chart is hidden with it. apart: the introduction of its section is
    not about it.
    """

    id: str
    title: str
    figure: str
    caption: str = ""
    wide: bool = False
    height: int = 0
    words: str = ""
    method: str = ""
    apart: bool = False


@dataclass
class ChartSection:
    """A section of charts; files: the same content as files next to the report.

    aside: the end of the introduction, which is about the page and not about the figures.
    """

    id: str
    title: str
    charts: list[Chart] = field(default_factory=list)
    intro: str = ""
    aside: str = ""
    small: bool = False
    files: Sequence[str] = ()


def charts(*made: tuple[str, str, go.Figure | None, str], wide: bool = False) -> list[Chart]:
    """Charts from (id, title, figure, caption), without those that have no figure."""
    return [
        Chart(i, title, _json(fig), caption, wide, int(fig.layout.height), describe_figure(fig))
        for i, title, fig, caption in made
        if fig is not None
    ]


def _json(fig: go.Figure) -> str:
    """JSON for a script element: contains no `<` that could end it."""
    return str(fig.to_json()).replace("<", "\\u003c")


def describe_figure(fig: go.Figure) -> str:
    """Describes a figure for readers who cannot see it: its axes and the ends of its first curves.

    If a figure has a table of values, because it draws positions, describes the table.
    """
    if table := (fig.layout.meta or {}).get("table"):
        return f"{plural(len(table['rows']), 'row')} of {', '.join(map(without_markup, table['heads']))}"
    down, across = (without_markup(axis.title.text or "") for axis in (fig.layout.yaxis, fig.layout.xaxis))
    axes = f"{down} by {across}" if down and across else down or across
    lines = [
        t
        for t in fig.data
        if t.type == "scatter" and t.name and t.showlegend is not False and "lines" in (t.mode or "")
    ]
    ends = [f"{without_markup(t.name)} {t.y[-1]:.4g}" for t in reversed(lines) if len(t.y) and t.y[-1] is not None]
    more = f", and {len(ends) - MOST_CURVES_NAMED} more" if len(ends) > MOST_CURVES_NAMED else ""
    last_values = f"at the end {', '.join(ends[:MOST_CURVES_NAMED])}{more}" if ends else ""
    return "; ".join(part for part in (axes, last_values) if part)


def without_markup(text: str) -> str:
    """Removes HTML markup."""
    return re.sub(r"<[^>]*>", " ", text)
