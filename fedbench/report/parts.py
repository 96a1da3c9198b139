"""The sections of a page that hold charts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from fedbench.results.quantities import plural

MOST_NAMED = 8
"""Curves whose ends are said in words."""


@dataclass
class Chart:
    """A figure as JSON, `height` pixels high; `words` say what it shows; `wide` charts take a row of their own."""

    id: str
    title: str
    figure: str
    caption: str = ""
    wide: bool = False
    height: int = 0
    words: str = ""


@dataclass
class Part:
    """A section of charts; files: what lies beside the page and holds the same."""

    id: str
    title: str
    charts: list[Chart] = field(default_factory=list)
    intro: str = ""
    small: bool = False
    files: Sequence[str] = ()


def charts(*made: tuple[str, str, go.Figure | None, str], wide: bool = False) -> list[Chart]:
    """Charts out of (id, title, figure, caption), without those that have no figure."""
    return [
        Chart(i, title, _json(fig), caption, wide, int(fig.layout.height), in_words(fig))
        for i, title, fig, caption in made
        if fig is not None
    ]


def _json(fig: go.Figure) -> str:
    """For a script element: no `<` can end it early."""
    return str(fig.to_json()).replace("<", "\\u003c")


def in_words(fig: go.Figure) -> str:
    """What a figure shows, for readers who do not see it: its axes, and where its first curves end.

    Where a figure brings the table of its values, because it draws places and not values: what that holds.
    """
    if table := (fig.layout.meta or {}).get("table"):
        return f"{plural(len(table['rows']), 'row')} of {', '.join(map(plain, table['heads']))}"
    down, across = (plain(axis.title.text or "") for axis in (fig.layout.yaxis, fig.layout.xaxis))
    axes = f"{down} by {across}" if down and across else down or across
    lines = [
        t
        for t in fig.data
        if t.type == "scatter" and t.name and t.showlegend is not False and "lines" in (t.mode or "")
    ]
    ends = [f"{plain(t.name)} {t.y[-1]:.4g}" for t in reversed(lines) if len(t.y) and t.y[-1] is not None]
    more = f", and {len(ends) - MOST_NAMED} more" if len(ends) > MOST_NAMED else ""
    said = f"at the end {', '.join(ends[:MOST_NAMED])}{more}" if ends else ""
    return "; ".join(part for part in (axes, said) if part)


def plain(text: str) -> str:
    """Without marks of HTML."""
    return re.sub(r"<[^>]*>", " ", text)
