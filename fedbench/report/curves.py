"""Curves: scores and losses over rounds, and scores against cost. Colours are those of theme.LIGHT."""

from collections.abc import Iterable, Mapping
from html import escape
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.theme import LIGHT, SOLID, axis, figure, hover, label_ends, round_axis, score_axis, with_opacity
from fedbench.results.curves import over_seeds, seed_curve
from fedbench.results.newcomers import newcomer_curve
from fedbench.results.reader import Records, is_run

MOST_POINTS = 200
"""Maximum number of points of a drawn curve, about what a chart has room for."""
MOST_UNIFIED = 8
"""Up to this many curves, hovering shows the values of all; beyond, only the nearest one's."""
FAR_APART = 10
"""The axis of costs is logarithmic if methods' costs differ by this factor."""


def thin_out(frame: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_POINTS evenly spaced rows, including the first and the last."""
    if len(frame) <= MOST_POINTS:
        return frame
    return frame.iloc[np.linspace(0, len(frame) - 1, MOST_POINTS).round().astype(int)]


def round_values(values: Iterable[Any]) -> list[Any]:
    """Numbers rounded to five digits, more than a chart shows."""
    return [float(f"{value:.5g}") if isinstance(value, float) else value for value in pd.Series(list(values)).tolist()]


def method_curves(study: Study, point: str, limits: list[float]) -> go.Figure | None:
    """Test score over rounds at one point, one curve per method with the band from lowest to highest seed."""
    return _curves(
        {method: (study.curves[method, point], study.colours[method]) for method in study.metrics},
        score_axis(study.metric, limits),
        hover(study.metric),
        study.dashes,
    )


def point_curves(study: Study) -> go.Figure | None:
    """Test score over rounds of a single method, one curve per evaluation point."""
    if study.method not in study.metrics:
        return None
    colours = {"after_agg": LIGHT["accent"], "after_fit": LIGHT["c1"], "global": LIGHT["c2"]}
    curves = {name: (study.curves[study.method, p], colours[p]) for p, name in POINT_NAMES.items()}
    return _curves(curves, score_axis(study.metric, curve_limits(study)), hover(study.metric))


def curve_limits(study: Study) -> list[float]:
    """Lowest and highest shown score of all curves, so that panels share their axis."""
    known = [curve for curve in study.curves.values() if len(curve)]
    return [min(c["min"].min() for c in known), max(c["max"].max() for c in known)] if known else [0, 100]


def newcomer_curves(study: Study) -> go.Figure | None:
    """Test score of newcomers over their local epochs, one curve per method."""
    curves = {method: newcomer_curve(study.metric, study.runs[method].newcomers()) for method in study.ordered}
    known = [curve for curve in curves.values() if len(curve)]
    if not known:
        return None
    limits = [min(curve["min"].min() for curve in known), max(curve["max"].max() for curve in known)]
    shown = {m: (c.rename(columns={"epochs": "round"}), study.colours[m]) for m, c in curves.items()}
    fig = _curves(shown, score_axis(study.metric, limits), hover(study.metric), study.dashes)
    if fig is not None:
        ticks = sorted(set().union(*(curve["epochs"] for curve in known)))
        fig.update_layout(xaxis=axis("local epochs of a newcomer", showgrid=False, tickvals=ticks))
    return fig


def loss_curves(study: Study) -> go.Figure | None:
    """Each method's own training loss over rounds, mean over clients, with the band from lowest to highest seed."""
    curves = {method: over_seeds(frame, "train_loss") for method, frame in study.metrics.items()}
    highest = [curve["max"].max() for curve in curves.values() if len(curve)]
    if not highest:
        return None
    yaxis = axis("training loss", range=[-0.03 * max(highest), 1.05 * max(highest)])
    shown = {method: (curve, study.colours[method]) for method, curve in curves.items()}
    return _curves(shown, yaxis, "%{y:.3g}", study.dashes)


def tried_curves(study: Study) -> go.Figure | None:
    """Validation score over rounds of the subject's tuned points, the chosen one in front."""
    metric, plan = study.metric, study.plan
    curves: dict[str, tuple[pd.DataFrame, str]] = {}
    for entry in plan.points():
        seeds = [e for e in plan.entries if (e.role, e.label, e.name) == (entry.role, entry.label, entry.name)]
        begun = [study.folder / e.path for e in seeds if is_run(study.folder / e.path)]
        frame = Records(*begun).metrics() if begun else pd.DataFrame()
        if len(frame) and len(curve := seed_curve(metric, frame, study.point, "val")):
            colour = LIGHT["c1"] if entry.values == plan.choices.get(entry.label) else LIGHT["quiet"]
            curves[entry.name] = (curve, colour)
    if len(curves) < 2:
        return None
    limits = [min(c["mean"].min() for c, _ in curves.values()), max(c["mean"].max() for c, _ in curves.values())]
    return _curves(curves, score_axis(metric, limits, "validation"), hover(metric), methods=False)


def _curves(
    curves: dict[str, tuple[pd.DataFrame, str]],
    yaxis: dict[str, Any],
    hover_text: str,
    dashes: Mapping[str, str] = MappingProxyType({}),
    methods: bool = True,
) -> go.Figure | None:
    """Draws curves by name with their colours; quiet ones are behind the others, and without a band if not methods."""
    curves = {name: (thin_out(curve), colour) for name, (curve, colour) in curves.items() if len(curve)}
    if not curves:
        return None
    fig = figure(360, xaxis=round_axis(max(curve["round"].max() for curve, _ in curves.values())), yaxis=yaxis)
    fig.update_layout(hovermode="x unified" if len(curves) <= MOST_UNIFIED else "closest")
    for name, (curve, colour) in sorted(curves.items(), key=lambda item: is_loud(item[1][1])):
        if methods or is_loud(colour):
            add_band(fig, name, curve["round"], curve["min"], curve["max"], colour)
        add_line(fig, name, curve["round"], curve["mean"], colour, dashes.get(name, SOLID), hovertemplate=hover_text)
    _label(fig, {name: (curve["mean"].iloc[-1], colour) for name, (curve, colour) in curves.items()})
    return fig


def is_loud(colour: str) -> bool:
    """Whether a curve has a colour and a name of its own."""
    return colour != LIGHT["quiet"]


def add_line(
    fig: go.Figure, name: str, x: Iterable[Any], y: Iterable[Any], colour: str, dash: str = SOLID, **more: Any
) -> None:
    """Draws one curve; `meta` names its method, so that the reader can highlight it. more: properties of the trace."""
    xs, loud = round_values(x), is_loud(colour)
    line = {"color": colour, "width": 2.4 if loud else 1.2, "dash": dash}
    fig.add_scatter(x=xs, y=round_values(y), mode="lines+markers" if len(xs) == 1 else "lines", line=line)
    fig.data[-1].update(name=escape(name), meta={"method": name}, showlegend=loud, **more)


def add_band(fig: go.Figure, name: str, x: Iterable[Any], low: Iterable[Any], high: Iterable[Any], colour: str) -> None:
    """Draws the band of a curve unless it has no width; that of a quiet one shows once a reader chooses its method."""
    xs, lower, upper = round_values(x), round_values(low), round_values(high)
    if lower == upper:
        return
    edge = {"x": xs + xs[::-1], "y": upper + lower[::-1], "mode": "lines", "line": {"width": 0}}
    fig.add_scatter(**edge, fill="toself", fillcolor=with_opacity(colour, 0.14), hoverinfo="skip", showlegend=False)
    fig.data[-1].update(meta={"method": name, "band": True}, visible=is_loud(colour))


def _label(fig: go.Figure, ends: dict[str, tuple[float, str]]) -> None:
    label_ends(fig, [(escape(name), y, colour) for name, (y, colour) in ends.items() if is_loud(colour)])
    downwards = sorted(ends, key=lambda name: -ends[name][0])
    for trace in fig.data:
        trace.legendrank = 1 + downwards.index(trace.meta["method"])


UNITS = {"sent": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)), "steps": (("steps", 1),)}


def cost_curves(study: Study, cost: str) -> go.Figure | None:
    """Score against the cost so far (`sent` or `steps`), one curve per method; None if nothing was spent.

    A method without cost is a level line: its last score is drawn from the start.
    """
    known = {method: so_far[[cost, "score"]] for method, so_far in study.costs.items() if len(so_far)}
    paid = {method: so_far for method, so_far in known.items() if so_far[cost].iloc[-1] > 0}
    if not paid:
        return None
    totals = [so_far[cost].iloc[-1] for so_far in paid.values()]
    far = max(totals) > FAR_APART * min(totals)
    ends = [min(so_far[cost].iloc[0] for so_far in paid.values()) if far else 0.0, max(totals)]
    level = {m: pd.DataFrame({cost: ends, "score": c["score"].iloc[-1]}) for m, c in known.items() if m not in paid}
    unit, scale = next((unit, scale) for unit, scale in UNITS[cost] if max(totals) >= scale or scale == 1)
    title = f"traffic per client so far, {unit}" if cost == "sent" else "gradient steps so far"
    scaled = {"type": "log", "dtick": 1} if far else {"rangemode": "tozero"}
    limits = [score for so_far in {**known, **level}.values() for score in so_far["score"]]
    fig = figure(340, xaxis=axis(title, showgrid=False, **scaled), yaxis=score_axis(study.metric, limits))
    fig.update_layout(hovermode="closest")
    for method in sorted(known, key=lambda method: is_loud(study.colours[method])):
        curve, hover_text = thin_out(level.get(method, known[method])), f"%{{x:.3g}} {unit}, {hover(study.metric)}"
        add_line(fig, method, curve[cost] / scale, curve["score"], study.colours[method], study.dashes[method])
        fig.data[-1].hovertemplate = f"{escape(method)}<br>{hover_text}<extra></extra>"
    _label(fig, {method: (so_far["score"].iloc[-1], study.colours[method]) for method, so_far in known.items()})
    return fig
