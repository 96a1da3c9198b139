"""The traces of Plotly's figures as matplotlib's lines, markers, bars and cells."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from itertools import cycle
from math import nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from fedbench.report.theme import LIGHT, SOLID
from fedbench.report.typeset import ShownMethods

DASHES = {"solid": "-", "dash": (0, (5, 2)), "dot": (0, (1, 1.5))}
MARKERS = "osD^vPX<>*"
MOST_MARKS = 7
"""Maximum number of markers of a curve."""
POINTS = 72 / 117
"""Points per pixel: the 13 pixels of the page's letters are 8 points here."""


@dataclass(frozen=True)
class TraceLook:
    """The style of a trace that its own values do not have. name: in the report; rows: of the chart that have names."""

    shown: ShownMethods
    marker: tuple[str, int] | None
    name: str | None
    rows: int


def method_of(trace: Any) -> str:
    """The method that a trace is of, else an empty text."""
    return str((trace.meta or {}).get("method", "")) if isinstance(trace.meta, Mapping) else ""


def marks_of(traces: Sequence[Any]) -> dict[str, tuple[str, int]]:
    """A marker and its number by method; methods whose lines have dashes, and quiet curves go without."""
    dashed = {method for trace in traces if (method := method_of(trace)) and trace.line.dash not in (None, SOLID)}
    known = dict.fromkeys(
        method
        for trace in traces
        if (method := method_of(trace)) and trace.line.color != LIGHT["quiet"] and method not in dashed
    )
    return {method: (mark, i) for i, (method, mark) in enumerate(zip(known, cycle(MARKERS), strict=False))}


def draw_trace(axes: Axes, trace: Any, x: np.ndarray, y: np.ndarray, look: TraceLook) -> None:
    """Draws a trace at these positions along the axes."""
    draw = {"bar": _bars, "heatmap": _cells}.get(trace.type, _scatter)
    draw(axes, trace, x, y, look)


def _scatter(axes: Axes, trace: Any, x: np.ndarray, y: np.ndarray, look: TraceLook) -> None:
    if trace.fill == "toself":
        axes.fill(x, y, facecolor=matplotlib_colour(trace.fillcolor), edgecolor="none")
        return
    modes = (trace.mode or "lines").split("+")
    label = "_quiet" if trace.showlegend is False or not look.name else look.shown.name(unescape(look.name))
    if "lines" in modes:
        axes.plot(x, y, label=label, **_line(trace, len(x), look))
    if "markers" in modes and (len(x) == 1 or not ("lines" in modes and method_of(trace))):
        alone: dict[str, Any] = {} if "lines" in modes else {"label": label}
        axes.scatter(x, y, zorder=3, clip_on=False, **_dots(trace, len(x)), **alone)
    if "text" in modes:
        _write(axes, x, y, [_format_value(trace.texttemplate, "y", value) for value in y])


def _line(trace: Any, count: int, look: TraceLook) -> dict[str, Any]:
    width = 0.55 * float(trace.line.width or 2.0)
    style = DASHES[trace.line.dash or "solid"]
    style_of_line = {"color": matplotlib_colour(trace.line.color), "lw": width, "ls": style, "solid_capstyle": "butt"}
    if trace.line.shape == "hv":
        style_of_line["drawstyle"] = "steps-post"
    if look.marker:
        mark, number = look.marker
        step = max(1, count // MOST_MARKS)
        style_of_line |= {"marker": mark, "ms": 3.6, "mew": 0.5, "mec": "white", "markevery": (number % step, step)}
    return style_of_line


def _dots(trace: Any, count: int) -> dict[str, Any]:
    """Colours and sizes of markers, as on the page."""
    marker = trace.marker
    colours = [marker.color] * count if marker.color is None or isinstance(marker.color, str) else list(marker.color)
    colours = [matplotlib_colour(colour or trace.line.color or LIGHT["accent"]) for colour in colours]
    hollow = str(marker.symbol or "").endswith("-open")
    faces = ["white" if hollow or colour == (0, 0, 0, 0) else colour for colour in colours]
    given = [marker.line.color] * count if isinstance(marker.line.color, str) else list(marker.line.color or colours)
    edges = [matplotlib_colour(colour) for colour in given]
    sizes = 7.0 if marker.size is None else marker.size
    if marker.sizemode == "area":
        diameters = np.sqrt(np.asarray(sizes, dtype=float) / marker.sizeref) * POINTS
    else:
        diameters = np.broadcast_to(np.asarray(sizes, dtype=float) * POINTS, (count,))
    return {"c": faces, "edgecolors": edges, "s": 0.8 * diameters**2, "linewidths": 0.8}


def _bars(axes: Axes, trace: Any, x: np.ndarray, y: np.ndarray, look: TraceLook) -> None:
    """Horizontal bars, stacked on those that are there."""
    starts = np.zeros(len(y))
    bar: Any
    for bar in axes.patches:
        starts[np.isclose(y, bar.get_y() + bar.get_height() / 2)] += bar.get_width()
    kept = ~np.isnan(y)
    height = float(trace.width or 0.6)
    label = unescape(look.name) if look.name else "_quiet"
    axes.barh(y[kept], x[kept], height, starts[kept], color=matplotlib_colour(trace.marker.color), label=label)
    if trace.texttemplate:
        for value, row in zip(x[kept], y[kept], strict=True):
            text = _format_value(trace.texttemplate, "x", value)
            axes.annotate(text, (value, row), (2, 0), textcoords="offset points", va="center", size=7)


def _cells(axes: Axes, trace: Any, x: np.ndarray, y: np.ndarray, look: TraceLook) -> None:
    """A heat map, with its numbers in the cells or with a bar of colours."""
    values = np.array([[nan if cell is None else cell for cell in row] for row in trace.z], dtype=float)
    scale = LinearSegmentedColormap.from_list("fedbench", [(at, colour) for at, colour in trace.colorscale])
    mesh = axes.pcolormesh(x, y, np.ma.masked_invalid(values), cmap=scale, vmin=trace.zmin, vmax=trace.zmax)
    mesh.set(edgecolor="white", linewidth=0.6 if look.rows else 0)
    axes.grid(False)
    if trace.texttemplate:
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                tone = "white" if np.dot(mesh.to_rgba(value)[:3], (0.3, 0.59, 0.11)) < 0.5 else LIGHT["ink"]
                text = _format_value(trace.texttemplate, "z", value)
                axes.text(float(x[column]), float(y[row]), text, ha="center", va="center", size=7, color=tone)
    elif trace.showscale is not False:
        bar: Any = axes.figure.colorbar(mesh, ax=axes, label=unescape(trace.colorbar.title.text or ""))
        bar.outline.set_visible(False)


def _format_value(template: str | None, name: str, value: float) -> str:
    """`%{y:.1f}` -> `84.2`."""
    match = re.match(rf"%\{{{name}:(.*?)\}}", template or "")
    return "" if np.isnan(value) else format(value, match[1] if match else ".3g")


def _write(axes: Axes, x: np.ndarray, y: np.ndarray, texts: Sequence[str]) -> None:
    for across, up, text in zip(x, y, texts, strict=True):
        axes.annotate(text, (across, up), (0, 5), textcoords="offset points", ha="center", size=8)
    axes.margins(y=0.15)


def matplotlib_colour(text: str | None) -> Any:
    """A colour of Plotly's as matplotlib takes it: `rgba(31, 119, 180, 0.14)` as numbers from 0 to 1."""
    if text is None or not text.startswith("rgb"):
        return text
    *rgb, alpha = [float(part) for part in text.partition("(")[2].rstrip(")").split(",")]
    return (*(value / 255 for value in rgb), alpha) if len(rgb) == 3 else tuple(v / 255 for v in (*rgb, alpha))
