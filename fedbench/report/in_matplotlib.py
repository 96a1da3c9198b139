"""The figures of a report as matplotlib's, for papers: with the numbers and colours of Plotly's, but for print.

A figure is as wide as a column and has no title. Methods differ in their markers too, so that they can be told apart
without colour. Fonts are embedded as TrueType, which publishers ask for.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from html import unescape
from io import BytesIO
from math import nan
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from fedbench.errors import ConfigError
from fedbench.report.matplotlib_traces import (
    DASHES,
    POINTS,
    TraceLook,
    draw_trace,
    marks_of,
    matplotlib_colour,
    method_of,
)
from fedbench.report.theme import LIGHT
from fedbench.report.typeset import ShownMethods
from fedbench.results.files import write_atomically

COLUMN = 3.4
"""Width of a column in inches."""
SHAPE, ROW, FRAME = 0.68, 0.19, 0.62
"""Height of a chart relative to its width; height of a row with a name and of what surrounds such rows, in inches."""
STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LIGHT["muted"],
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 0.6,
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.labelcolor": LIGHT["ink"],
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.4,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "fedbench",
}
"""The salt makes identifiers in an SVG depend on its content only."""
PICTURES = ("pdf", "svg", "png")
LINE, LETTERS = 0.16, 16
"""Height of a line of the legend in inches; letters per inch."""
RowLabels = dict[str, int]


EVERYTHING = ShownMethods()


def plain_text(shown: ShownMethods, text: str | None) -> str:
    """A text of Plotly's with the methods' names, without markup."""
    return shown.rename(unescape(re.sub(r"<br ?/?>", "\n", text or "")))


def in_matplotlib(figure: go.Figure, shown: ShownMethods = EVERYTHING, width: float = COLUMN) -> Figure:
    """A figure of a report as matplotlib's, which belongs to no window. width: in inches."""
    return in_panels([figure], shown, width)


def in_panels(figures: Sequence[go.Figure], shown: ShownMethods = EVERYTHING, width: float = COLUMN) -> Figure:
    """Figures with the same upright axis beside each other, under the legend of the first one."""
    with rc_context(STYLE):
        made, each = Figure(layout="constrained"), width / len(figures)
        panels = made.subplots(1, len(figures), sharey=True, squeeze=False)[0]
        rows = [draw_on(axes, drawn, shown, round(LETTERS * each)) for axes, drawn in zip(panels, figures, strict=True)]
        for axes in panels[1:]:
            axes.set_ylabel("")
        legend = _legend(panels[0], figures[0], shown)
        columns = min(len(legend), max(1, int(width / (0.62 + max(map(len, legend), default=0) / LETTERS))))
        lines = -(-len(legend) // columns) if legend else 0
        made.set_size_inches(width, (FRAME + ROW * max(rows) if any(rows) else SHAPE * each) + LINE * lines)
        if legend:
            legend_style: dict[str, Any] = {"loc": "outside upper center", "ncols": columns, "borderaxespad": 0.2}
            made.legend([*legend.values()], [*legend], **legend_style)
    return made


def _legend(axes: Axes, figure: go.Figure, shown: ShownMethods) -> dict[str, Any]:
    """The handles of the legend by name: the methods in their order, or the entries of the page's legend."""
    if not figure.layout.showlegend and not any(map(method_of, figure.data)):
        return {}
    handles, labels = axes.get_legend_handles_labels()
    order = {shown.name(label): rank for rank, label in enumerate(shown.methods or shown.labels)}
    known = dict(zip(labels, handles, strict=True))
    return {label: known[label] for label in sorted(known, key=lambda label: order.get(label, len(order)))}


def draw_on(axes: Axes, figure: go.Figure, shown: ShownMethods = EVERYTHING, letters: int = 60) -> int:
    """Draws a figure without its legend. letters: that fit into its width.

    Returns its number of rows that have names, 0 for an axis of numbers.
    """
    places = {name: _categories(figure, name, shown) for name in ("x", "y")}
    traces = [trace for trace in figure.data if trace.visible is not False and shown.has(method_of(trace))]
    marks = marks_of(traces)
    for trace in traces:
        x, y = (_positions(getattr(trace, name), places[name]) for name in ("x", "y"))
        draw_trace(axes, trace, x, y, TraceLook(shown, marks.get(method_of(trace)), trace.name, len(places["y"])))
    for shape in figure.layout.shapes:
        _shape(axes, shape)
    for note in figure.layout.annotations:
        if note.name != "end":  # the legend has these
            _note(axes, note, shown)
    for name, axis in (("x", figure.layout.xaxis), ("y", figure.layout.yaxis)):
        _axis(axes, name, axis, places[name], shown, letters)
    ticks = figure.layout.yaxis.ticktext
    return len(places["y"]) or (len(ticks) if ticks and figure.layout.yaxis.visible is not False else 0)


def picture_format(file: Path | None, format: str | None = None, others: Iterable[str] = ()) -> str:
    """The format that is asked for, else that by which the name of a file ends.

    Raises ConfigError, which also names the others.
    """
    end = file.suffix.removeprefix(".") if file else ""
    kind = format or end or PICTURES[0]
    if kind not in PICTURES:
        what = f"format = {format}" if format else f"{file}: the end of its name"
        raise ConfigError(f"{what}: must be one of {', '.join([*PICTURES, *others])}")
    if end in PICTURES and end != kind:
        raise ConfigError(f"format = {format}: {file} ends in {end}; leave one of them out")
    return kind


def save_picture(figure: Figure, file: Path, kind: str) -> None:
    """Writes a figure as PDF, SVG or PNG; the same numbers give the same file."""
    content, dates = BytesIO(), {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with rc_context(STYLE):
        figure.savefig(content, format=kind, metadata=dates.get(kind))
    write_atomically(file, content.getvalue())


def _categories(figure: go.Figure, name: str, shown: ShownMethods) -> RowLabels:
    """The places of the categories of an axis; none for an axis of numbers."""
    axis = getattr(figure.layout, f"{name}axis")
    if axis.type != "category":
        return {}
    values: list[Any] = list(axis.categoryarray if axis.categoryarray is not None else ())
    for trace in figure.data:
        values += [] if getattr(trace, name) is None else list(getattr(trace, name))
    kept = (value for value in dict.fromkeys(map(str, values)) if shown.has(unescape(value)))
    return {value: position for position, value in enumerate(kept)}


def _positions(values: Iterable[Any] | None, categories: RowLabels) -> np.ndarray:
    """Positions along an axis; NaN interrupts a line, or is a category that is not shown."""
    positions = [] if values is None else list(values)
    if categories:
        return np.array([nan if value is None else categories.get(str(value), nan) for value in positions], dtype=float)
    return np.array([nan if value is None else value for value in positions], dtype=float)


def _shape(axes: Axes, shape: Any) -> None:
    """A line across the whole chart, a shaded range, or a frame."""
    line = {"color": matplotlib_colour(shape.line.color), "lw": 0.4 * float(shape.line.width or 0)}
    if shape.type == "line" and shape.x0 == shape.x1:
        axes.axvline(shape.x0, **line, zorder=1.5)
    elif "domain" in str(shape.yref):
        axes.axvspan(shape.x0, shape.x1, facecolor=matplotlib_colour(shape.fillcolor), lw=0)
    else:
        size = shape.x1 - shape.x0, shape.y1 - shape.y0
        style = {"ec": line["color"], "lw": line["lw"], "ls": DASHES[shape.line.dash or "solid"]}
        axes.add_patch(Rectangle((shape.x0, shape.y0), *size, fill=False, **style, zorder=4, clip_on=False))


ANCHORS = {"left": "left", "right": "right", "center": "center", None: "center", "auto": "center"}
UPRIGHT = {"bottom": "bottom", "top": "top", "middle": "center", None: "center", "auto": "center"}


def _note(axes: Axes, note: Any, shown: ShownMethods) -> None:
    transform: Any = axes.get_yaxis_transform() if note.xref == "paper" else axes.transData
    colour = matplotlib_colour(note.font.color) if note.font.color else LIGHT["ink"]
    shift = float(note.xshift or {"left": 4, "right": -4}.get(note.xanchor, 0))
    at: dict[str, Any] = {"xytext": (POINTS * shift, 0), "textcoords": "offset points"}
    anchors: dict[str, Any] = {"ha": ANCHORS[note.xanchor], "va": UPRIGHT[note.yanchor]}
    back = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.85}
    box: dict[str, Any] = {"bbox": back} if note.bgcolor else {}
    axes.annotate(
        plain_text(shown, note.text), (note.x, note.y), xycoords=transform, color=colour, **at, **anchors, **box
    )


def _axis(axes: Axes, name: str, axis: Any, categories: RowLabels, shown: ShownMethods, letters: int) -> None:
    """Label, scale, ends, ticks and direction."""
    side: Any = axes.xaxis if name == "x" else axes.yaxis
    limit: Callable[..., Any] = axes.set_xlim if name == "x" else axes.set_ylim
    side.set_label_text(fill(plain_text(shown, axis.title.text), letters))
    if axis.type == "log":
        axes.set(**{f"{name}scale": "log"})
        side.set_major_formatter("{x:g}")
    if categories:
        side.set_ticks([*categories.values()], [shown.name(unescape(label)) for label in categories])
        limit(-0.6, len(categories) - 0.4)
    elif axis.tickvals is not None:
        texts = axis.ticktext if axis.ticktext is not None else [f"{value:g}" for value in axis.tickvals]
        side.set_ticks(list(axis.tickvals), [plain_text(shown, str(text)) for text in texts], multialignment="center")
        side.set_minor_locator(NullLocator())
    elif axis.dtick == 1 and axis.type != "log":  # there Plotly means a decade
        side.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if axis.range is not None and not categories and (axis.tickvals is not None or axis.visible is False or axis.side):
        limit(*(10**end if axis.type == "log" else end for end in axis.range))
    if axis.showgrid is False or categories:
        side.grid(False)
    if categories or (name == "y" and axis.tickvals is not None):
        side.set_tick_params(length=0)
    if axis.autorange == "reversed":
        side.set_inverted(True)
    if axis.visible is False:
        side.set_visible(False)
        axes.spines["left" if name == "y" else "bottom"].set_visible(False)
    if axis.side == "top":
        side.tick_top()
        side.set_label_position("top")
        axes.spines["bottom"].set_visible(False)
        axes.spines["top"].set_visible(bool(axis.title.text))
