"""Colours and layout of all figures.

Figures use the light colours. In a dark theme the page replaces every colour of LIGHT by its counterpart in DARK, so
each colour must occur only once in LIGHT.
"""

from collections.abc import Collection, Sequence
from typing import Any

import plotly.graph_objects as go

from fedbench.results.tables import BASELINE
from fedbench.tasks import Metric

PALETTE = {
    "ink": ("#1a1d24", "#eceef2"),
    "muted": ("#5f6775", "#9ea6b4"),
    "quiet": ("#aeb5c0", "#596170"),
    "grid": ("#e7e9ee", "#2a2f39"),
    "ground": ("#ffffff", "#14171d"),
    "accent": ("#0b5fc4", "#63a8ff"),
    "alarm": ("#c8451b", "#ff8a5c"),
    "local": ("#4a505c", "#c3c8d2"),
    "c1": ("#d98a00", "#f0ae3c"),
    "c2": ("#00876c", "#3cc7a5"),
    "c3": ("#b3558f", "#e08fbf"),
    "c4": ("#3a9fd6", "#7cc7f2"),
    "c5": ("#8a6d1f", "#cdb05a"),
    "c6": ("#6b5bc0", "#a99cf2"),
    "s0": ("#f1f5fb", "#1a202b"),
    "s1": ("#bcd5f2", "#1f4475"),
    "s2": ("#5f9fe0", "#3f82d2"),
    "s3": ("#0a4a9b", "#b4d6ff"),
}
"""Every colour in the light and in the dark theme."""
LIGHT, DARK = ({name: pair[theme] for name, pair in PALETTE.items()} for theme in (0, 1))
METHOD_COLOURS = ["c1", "c2", "c3", "c4", "c5", "c6"]
SOLID = "solid"
"""The dash of a line without gaps."""
SCALE = [(0.0, LIGHT["s0"]), (0.33, LIGHT["s1"]), (0.67, LIGHT["s2"]), (1.0, LIGHT["s3"])]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LETTER = 7.2  # pixels, mean width of a letter of a direct label
LINE_HEIGHT = 17  # pixels between two direct labels


def colour_of(methods: Sequence[str], subject: str) -> dict[str, str]:
    """One colour per method, the same in every figure: accent for the study's own, grey for local.

    If there are more methods than colours, the last ones are quiet.
    """
    fixed = {BASELINE: LIGHT["local"], subject: LIGHT["accent"]}
    others = [method for method in methods if method not in fixed]
    names = [*METHOD_COLOURS, *["quiet"] * len(others)]
    return fixed | {method: LIGHT[name] for method, name in zip(others, names, strict=False)}


def dash_of(method: str, references: Collection[str]) -> str:
    """Lines of local training and of references stay apart from methods without colour, too."""
    return "dash" if method == BASELINE else "dot" if method in references else SOLID


def with_opacity(colour: str, opacity: float) -> str:
    """The colour as rgba(); opacity in [0, 1]."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def figure(height: int = 340, right: int = 16, **layout: Any) -> go.Figure:
    """An empty chart in the page's style, `height` pixels high, without drag, which pages add."""
    return go.Figure(
        layout={
            "template": {},
            "height": height,
            "margin": {"l": 58, "r": right, "t": 12, "b": 48},
            "font": {"family": FONT, "size": 13, "color": LIGHT["muted"]},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "hoverlabel": {"bgcolor": LIGHT["ground"], "bordercolor": LIGHT["quiet"], "font_color": LIGHT["ink"]},
            "showlegend": False,
            "dragmode": False,
            "xaxis": axis(showgrid=False),
            "yaxis": axis(),
            **layout,
        }
    )


def figure_of_rows(height: int, xaxis: dict[str, Any], **layout: Any) -> go.Figure:
    """An empty chart whose rows have names, the first on top."""
    return figure(height, xaxis=xaxis, yaxis=axis(showgrid=False, type="category", autorange="reversed"), **layout)


def show_legend(fig: go.Figure, **more: Any) -> None:
    """Shows the legend in one line above the plot."""
    font = {"size": 13, "color": LIGHT["ink"]}
    style = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": font, **more}
    fig.update_layout(showlegend=True, legend=style, margin_t=36)


def axis(title: str | None = None, **more: Any) -> dict[str, Any]:
    """A plain axis: thin grid, no zero line, no zoom (pages add it)."""
    return {
        "title": {"text": title, "font": {"size": 13}, "standoff": 10},
        "gridcolor": LIGHT["grid"],
        "linecolor": LIGHT["grid"],
        "zeroline": False,
        "ticks": "",
        "fixedrange": True,
        "automargin": True,
        **more,
    }


def round_axis(last: int) -> dict[str, Any]:
    """An axis of rounds up to the last one, with whole-number ticks."""
    return axis("round", showgrid=False, dtick=1 if last <= 8 else None)


def score_axis(metric: Metric, values: Sequence[float], split: str = "test") -> dict[str, Any]:
    """An axis of scores as shown, with a small margin; shares stay within 0 and 100 %, which is their full range."""
    low, high = min(values), max(values)
    air = max(0.06 * (high - low), 0.8 if metric.share else 0.01 * abs(high))
    ends = [max(low - air, -1), min(high + air, 101)] if metric.share else [low - air, high + air]
    whole = {"minallowed": -1, "maxallowed": 101} if metric.share else {}
    return axis(f"{split} {metric.title}", range=ends, **whole)


def hover(metric: Metric, value: str = "%{y}") -> str:
    """The hover text of a score."""
    return f"{value[:-1]}:.1f}} %" if metric.share else f"{value[:-1]}:.3g}}"


def label_ends(fig: go.Figure, ends: Sequence[tuple[str, float, str]]) -> None:
    """Writes names at the right ends of curves: (name, y, colour), moved apart if they would overlap.

    The y axis needs its range set. On a narrow page a legend replaces them (`layout.meta`).
    """
    if not ends:
        return
    fig.update_layout(meta={"direct": True}, margin_r=20 + round(LETTER * max(len(name) for name, _, _ in ends)))
    low, high = fig.layout.yaxis.range
    height = fig.layout.height - fig.layout.margin.t - fig.layout.margin.b
    gap = LINE_HEIGHT * (high - low) / height
    order = sorted(range(len(ends)), key=lambda i: ends[i][1])
    places = spread([ends[i][1] for i in order], gap)
    # Values outside the axis are not drawn.
    places = [max(height_of_label, low + gap * (i + 0.5)) for i, height_of_label in enumerate(places)]
    places = [min(height_of_label, high - gap * (len(places) - 1 - i)) for i, height_of_label in enumerate(places)]
    for i, y in zip(order, places, strict=True):
        name, _, colour = ends[i]
        text = {"text": name, "font": {"color": colour, "size": 13}, "showarrow": False}
        fig.add_annotation(**text, x=1, xref="paper", y=y, xanchor="left", xshift=8, name="end")


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Moves sorted values at least `gap` apart and centres groups on their old position."""
    groups: list[list[float]] = []
    for value in values:
        groups.append([value])
        while len(groups) > 1 and _bottom(groups[-1], gap) - _top(groups[-2], gap) < gap:
            last = groups.pop()
            groups[-1] += last
    return [_bottom(group, gap) + i * gap for group in groups for i in range(len(group))]


def _bottom(group: list[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: list[float], gap: float) -> float:
    return _bottom(group, gap) + gap * (len(group) - 1)
