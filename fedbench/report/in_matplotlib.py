"""Curves of a report as matplotlib's figures, with the numbers and colours of Plotly's."""

from html import unescape
from typing import Any

import plotly.graph_objects as go
from matplotlib import rc_context
from matplotlib.figure import Figure

from fedbench.report.pictures import DASHES, STYLE

WIDTH, HEIGHT = 6.4, 3.6  # inches


def is_curves(figure: go.Figure) -> bool:
    """Whether a figure consists of curves, with or without bands, along a titled axis of numbers."""
    lines = all(trace.type == "scatter" and trace.mode in ("lines", "lines+markers") for trace in figure.data)
    axis = figure.layout.xaxis
    return lines and bool(axis.title.text) and axis.type != "category"


def curves_of(figure: go.Figure) -> Figure:
    """The curves as matplotlib's figure, which belongs to no window."""
    with rc_context(STYLE):
        drawn = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = drawn.subplots()
        for trace in figure.data:
            if trace.fill == "toself":
                if trace.visible is not False:
                    axes.fill(trace.x, trace.y, facecolor=_colour(trace.fillcolor), edgecolor="none")
            else:
                axes.plot(trace.x, trace.y, label=_label(trace), **_line(trace))
        for name, axis in (("x", figure.layout.xaxis), ("y", figure.layout.yaxis)):
            axes.set(**{f"{name}label": unescape(axis.title.text or ""), f"{name}scale": axis.type or "linear"})
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
    return drawn


def _label(trace: Any) -> str:
    """The name in the legend; matplotlib leaves out names that begin with an underscore."""
    return "_quiet" if trace.showlegend is False or not trace.name else unescape(trace.name)


def _line(trace: Any) -> dict[str, Any]:
    width = 0.7 * float(trace.line.width or 2.0)
    marker = "o" if "markers" in trace.mode else None
    return {"color": _colour(trace.line.color), "lw": width, "ls": DASHES[trace.line.dash or "solid"], "marker": marker}


def _colour(text: str | None) -> Any:
    """A colour of Plotly's as matplotlib takes it: `rgba(31, 119, 180, 0.14)` as numbers from 0 to 1."""
    if text is None or not text.startswith("rgb"):
        return text
    *rgb, alpha = [float(part) for part in text.partition("(")[2].rstrip(")").split(",")]
    return (*(value / 255 for value in rgb), alpha) if len(rgb) == 3 else tuple(v / 255 for v in (*rgb, alpha))
