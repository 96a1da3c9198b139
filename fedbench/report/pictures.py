"""The curves of a comparison as PNG and SVG files for papers and slides: those of the page, drawn by matplotlib."""

from pathlib import Path

from fedbench.report.curves import UNITS, cost_curves, curve_limits, method_curves
from fedbench.report.in_matplotlib import in_panels, save_picture
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import ShownMethods

WIDTH = 7.0
"""Inches of two panels."""
LONGEST_NAME = 40
"""Letters of a name in the legend; a longer one is cut in the middle."""


def write_pictures(study: Study, folder: Path) -> None:
    """Writes curves.png and .svg (over rounds) and costs.png and .svg (against cost).

    Writes no curves without evaluations and no costs without costs.
    """
    limits = curve_limits(study)
    over_rounds = {POINT_NAMES[point]: method_curves(study, point, limits) for point in ("after_agg", "after_fit")}
    over_costs = {cost: cost_curves(study, cost) for cost in UNITS}
    shown = ShownMethods(names={label: _shorten_name(label) for label in study.ordered}, labels=study.ordered)
    for name, figures in {"curves": over_rounds, "costs": over_costs}.items():
        drawn = {title: figure for title, figure in figures.items() if figure is not None}
        if not drawn:
            continue
        picture = in_panels([*drawn.values()], shown, WIDTH)
        for axes, title in zip(picture.axes, drawn, strict=True):
            axes.set_title(title if name == "curves" else "", fontsize="medium")
        for kind in ("png", "svg"):
            save_picture(picture, folder / f"{name}.{kind}", kind)


def _shorten_name(name: str) -> str:
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
