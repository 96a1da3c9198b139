"""Figures of a comparison: differences with their intervals, and the spread over tuned points."""

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

import plotly.graph_objects as go

from fedbench.report.curves import round_values
from fedbench.report.figures import paired_clients
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, axis, figure_of_rows, hover, with_opacity
from fedbench.report.typeset import p_text
from fedbench.report.verdicts import markers
from fedbench.results.contrasts import Contrast
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Bound, Verdict
from fedbench.tasks import Metric


def height_of(rows: int) -> int:
    """Height in pixels of a chart with a row per method; thirty rows fit on a sheet of paper."""
    return 90 + rows * (30 if rows <= 20 else 22)


OVER_LOCAL = "better than local"
VALUES = ("95 % interval", "over resampled seeds and clients", "p (adjusted)", "resolves", "seeds needed")
"""What is beside a difference in the table of a chart's values."""


def forest(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The difference of each method to local training."""
    return _forest(study, {row.label: row.over_local for row in rows if row.over_local is not None}, OVER_LOCAL)


def behind_best(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The difference of the best method to every other, or in a sequential test of every other to the best.

    None if `forest` shows the same.
    """
    found = {row.label: row.behind for row in rows if row.behind is not None}
    best = escape(rows[0].label)
    if study.race is not None:
        return _race_forest(study, found, f"better than {best}", sign=-1)
    if rows[0].label == BASELINE or not set(found) - {BASELINE}:
        return None
    return _forest(study, found, f"{best} is better")


def _forest(study: Study, verdicts: Mapping[str, Verdict], what: str) -> go.Figure | None:
    """Differences by label: intervals (thick), and over resampled seeds and clients (thin), both in the value table."""
    if study.race is not None:
        return _race_forest(study, verdicts, what)
    found = [verdict for verdict in verdicts.values() if isinstance(verdict, Contrast)]
    if not found:
        return None
    metric, title = study.metric, difference_title(study.metric, what)
    means = [(c.interval.mean, c.interval.mean) for c in found]
    thick, thin = ([_intervals(c)[place] or mean for c, mean in zip(found, means, strict=True)] for place in (0, 1))
    fig = figure_of_intervals(
        axis(title, **ZERO_LINE),
        [*verdicts],
        [c.interval.mean * metric.factor for c in found],
        thick=[(low * metric.factor, high * metric.factor) for low, high in thick],
        thin=[(low * metric.factor, high * metric.factor) for low, high in thin],
        heads=["method", title, *VALUES],
        values=[_values(metric, contrast) for contrast in found],
    )
    fig.data[-1].update(marker=markers(found), text=[difference_text(metric, c) for c in found])
    return fig


def _race_forest(study: Study, verdicts: Mapping[str, Verdict], what: str, sign: int = 1) -> go.Figure | None:
    """Differences with their simultaneous intervals; colours follow the verdicts. sign: -1 for the others' view."""
    found = {
        label: (verdict, verdict.interval if sign > 0 else -verdict.interval)
        for label, verdict in verdicts.items()
        if isinstance(verdict.interval, Bound)
    }
    if not found:
        return None
    metric, title, bounds = study.metric, difference_title(study.metric, what), [bound for _, bound in found.values()]
    ends = [[b.low if isfinite(b.low) else b.mean, b.high if isfinite(b.high) else b.mean] for b in bounds]
    shown = [[*map(metric.difference, (b.mean, *e)), str(b.seeds)] for b, e in zip(bounds, ends, strict=True)]
    fig = figure_of_intervals(
        axis(title, **ZERO_LINE),
        [*found],
        [b.mean * metric.factor for b in bounds],
        thick=[(low * metric.factor, high * metric.factor) for low, high in ends],
        heads=["method", title, "from", "to", "seeds"],
        values=shown,
    )
    states = [verdict for verdict, _ in found.values()]
    fig.data[-1].update(marker=markers(states, sign), text=[f"{m} ({a} to {b})" for m, a, b, _ in shown])
    return fig


def difference_title(metric: Metric, what: str) -> str:
    return f"{what} by, {'points' if metric.share else metric.label}"


Ends = Sequence[tuple[float, float]]
ZERO_LINE = {"zeroline": True, "zerolinecolor": LIGHT["ink"], "zerolinewidth": 1}


def figure_of_intervals(
    xaxis: dict[str, Any],
    labels: Sequence[str],
    dots: Sequence[float],
    thick: Ends,
    heads: Sequence[str],
    values: Sequence[Sequence[Any]],
    thin: Ends = (),
) -> go.Figure:
    """A row per label with a dot on its intervals; the dots, which are without a verdict, are the last trace.

    heads, values: the chart's table, without the labels. The axis ends beyond the lines, which would look cut off
    otherwise.
    """
    names = [escape(label) for label in labels]
    fig = figure_of_rows(height_of(len(names)), xaxis)
    rows = [[name, *own] for name, own in zip(names, values, strict=True)]
    fig.update_layout(meta={"table": {"heads": [*heads], "rows": rows}})
    for ends, width, opacity in ((thin, 2, 0.5), (thick, 6, 0.35)):
        if ends:
            x = [value for pair in ends for value in (*round_values(pair), None)]
            line = {"color": with_opacity(LIGHT["muted"], opacity), "width": width}
            fig.add_scatter(x=x, y=[name for name in names for _ in range(3)], mode="lines", line=line)
            fig.data[-1].update(hoverinfo="skip", showlegend=False)
    drawn = [value for trace in fig.data for value in trace.x if value is not None]
    air = 0.03 * (max(drawn) - min(drawn))
    fig.update_xaxes(autorangeoptions={"include": [min(drawn) - air, max(drawn) + air]})
    fig.add_scatter(x=[*dots], y=names, mode="markers", marker={"color": LIGHT["ink"], "size": 10}, showlegend=False)
    fig.data[-1].hovertemplate = "%{y}: %{text}<extra></extra>"
    return fig


def client_gains(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """Gains of each method's clients over local: range (thin), middle half (thick) and median."""
    metric, gains = study.metric, {}
    for row in rows:
        if (row.over_local or row.race) and row.label != BASELINE and len(paired := paired_clients(study, row.label)):
            gains[row.label] = metric.gain(paired[study.point], paired["local"])
    if not gains:
        return None
    at = [gain.quantile([0, 0.25, 0.5, 0.75, 1]).tolist() for gain in gains.values()]
    share = [f"{100 * (gain > 0).mean():.0f} %" for gain in gains.values()]
    fig = figure_of_intervals(
        axis(f"gain of a client over local training, {'points' if metric.share else metric.label}", **ZERO_LINE),
        [*gains],
        round_values(q[2] for q in at),
        thick=[(q[1], q[3]) for q in at],
        thin=[(q[0], q[4]) for q in at],
        heads=["method", "least", "lower quartile", "median", "upper quartile", "most", "clients that gain"],
        values=[[*round_values(q), own] for q, own in zip(at, share, strict=True)],
    )
    fig.data[-1].text = [f"{(gain > 0).sum()} of {len(gain)} clients gain" for gain in gains.values()]
    fig.data[-1].hovertemplate = "%{y}: median %{x:.3g}, %{text}<extra></extra>"
    return fig


def _intervals(found: Contrast) -> list[tuple[float, float] | None]:
    """The interval of a difference, and the one over resampled seeds and clients."""
    low, high = found.interval.low, found.interval.high
    return [None if low is None or high is None else (low, high), found.resampled]


def difference_text(metric: Metric, found: Contrast) -> str:
    """A difference in words, with both intervals."""
    difference, seeds, clients, p, *_ = _values(metric, found)
    said = [f"{name} {value}" for name, value in zip(VALUES, (seeds, clients, p), strict=False) if value]
    return "<br>".join([difference, *said])


def _values(metric: Metric, found: Contrast) -> list[str]:
    """A difference and its VALUES; unknown values are empty."""
    spans = [" to ".join(map(metric.difference, ends or ())) for ends in _intervals(found)]
    p = "" if found.p_adjusted is None else p_text(found.p_adjusted).removeprefix("= ")
    resolves = "" if found.resolves is None else metric.difference(found.resolves).lstrip("+")
    return [metric.difference(found.interval.mean), *spans, p, resolves, str(found.seeds_needed or "")]


def tuning_strip(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The validation score of every tuned point, one line per method; the chosen points are filled."""
    tried = {row.label: study.plan.points(row.label) for row in rows}
    tried = {label: entries for label, entries in tried.items() if any(entry.scores.get("val") for entry in entries)}
    if not tried:
        return None
    metric = study.metric
    fig = figure_of_rows(height_of(len(tried)), axis(f"validation {metric.title}"))
    for label, entries in tried.items():
        known = [(entry, value) for entry in entries if (value := entry.scores.get("val")) is not None]
        chosen = study.plan.choices.get(label)
        colours = [study.colours[label] if entry.values == chosen else "rgba(0,0,0,0)" for entry, _ in known]
        fig.add_scatter(
            x=[value * metric.factor for _, value in known],
            y=[escape(label)] * len(known),
            text=[escape(entry.name) for entry, _ in known],
            mode="markers",
            marker={"color": colours, "size": 9, "line": {"color": study.colours[label], "width": 1.4}},
            hovertemplate=f"%{{text}}<br>{hover(metric, '%{x}')}<extra></extra>",
            showlegend=False,
        )
    return fig
