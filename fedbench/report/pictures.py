"""The curves of a comparison as PNG and SVG files for papers and slides."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fedbench.report.curves import UNITS, CostCurves, costs_of, drawing_order
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.theme import LIGHT, dash_of
from fedbench.results.files import write_atomically

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LIGHT["quiet"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LIGHT["grid"],
    "legend.frameon": False,
    "svg.hashsalt": "fedbench",
}
"""The salt makes identifiers in an SVG depend on its content only."""
DASHES = {"solid": "-", "dash": "--", "dot": ":"}
Panel = Callable[[Axes], None]
WIDTH, HEIGHT, DPI = 9.0, 3.6, 200  # inches, dots per inch
LETTER, LEGEND_LINE = 0.08, 0.65  # inches, of a letter in the legend, and of its line with its margins
LONGEST_NAME = 40
"""Letters of a name in the legend, which leave room for the curves; a longer one is cut in the middle."""


def write_pictures(study: Study, folder: Path) -> list[str]:
    """Writes curves.png and .svg (over rounds) and costs.png and .svg (against cost), and returns their names.

    Writes no curves without evaluations and no costs without costs.
    """
    costs = [found for cost in UNITS if (found := costs_of(study, cost))]
    panels: dict[str, list[Panel]] = {
        "curves": [partial(_over_rounds, study, point) for point in ("after_agg", "after_fit")],
        "costs": [partial(_over_costs, study, found) for found in costs],
    }
    return [
        file for name, drawn in panels.items() if study.metrics and drawn for file in _write(study, folder, name, drawn)
    ]


def _write(study: Study, folder: Path, name: str, panels: list[Panel]) -> list[str]:
    with rc_context(STYLE):
        fig = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI)
        for axes, draw in zip(fig.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            draw(axes)
        fig.axes[0].set_ylabel(f"test {study.metric.title}")
        named = dict(zip(*reversed(fig.axes[0].get_legend_handles_labels()), strict=True))
        methods = [method for method in study.ordered if method in named]
        shown = [_shorten_name(method) for method in methods]
        fig.legend([named[method] for method in methods], shown, loc="upper right")
        names = LEGEND_LINE + LETTER * max(map(len, shown), default=0)
        fig.subplots_adjust(left=0.07, right=1 - names / WIDTH, bottom=0.14, top=0.92, wspace=0.05)
        png, svg = BytesIO(), BytesIO()
        FigureCanvasAgg(fig).print_png(png)
        FigureCanvasSVG(fig).print_svg(svg, metadata={"Date": None})  # so that the same numbers give the same file
    files = {f"{name}.png": png, f"{name}.svg": svg}
    for file, content in files.items():
        write_atomically(folder / file, content.getvalue())
    return [*files]


def _shorten_name(name: str) -> str:
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"


def _over_rounds(study: Study, point: str, axes: Axes) -> None:
    axes.set(title=POINT_NAMES[point], xlabel="round")
    for method in drawing_order(study, study.metrics):
        curve, colour = study.curves[method, point], study.colours[method]
        _line(study, axes, method, curve["round"], curve["mean"])
        if colour != LIGHT["quiet"]:
            axes.fill_between(curve["round"], curve["min"], curve["max"], color=colour, alpha=0.14, lw=0)


def _over_costs(study: Study, costs: CostCurves, axes: Axes) -> None:
    axes.set(xlabel=costs.title, xscale="log" if costs.far else "linear")
    if costs.far:
        axes.xaxis.set(major_formatter="{x:g}", minor_formatter=NullFormatter())
    for method in drawing_order(study, costs.curves):
        _line(study, axes, method, costs.curves[method]["spent"], costs.curves[method]["score"])


def _line(study: Study, axes: Axes, method: str, x: pd.Series, y: pd.Series) -> None:
    """Draws a curve; quiet methods are thin, grey and without a name."""
    colour = study.colours[method]
    quiet = colour == LIGHT["quiet"]
    name, width = ("_quiet", 0.7) if quiet else (method, 1.6)
    axes.plot(x, y, color=colour, lw=width, ls=DASHES[dash_of(method)], label=name)
