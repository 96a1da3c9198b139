"""Figures of a comparison: differences with their intervals, and the spread over tuned points."""

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite

import plotly.graph_objects as go

from fedbench.report.answer import doubts
from fedbench.report.curves import round_values
from fedbench.report.figures import paired_clients
from fedbench.report.leaderboard import LeaderboardRow, p_text
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, axis, figure, hover, with_opacity
from fedbench.report.tones import markers
from fedbench.results.contrasts import Contrast
from fedbench.results.race import Bound
from fedbench.results.tables import BASELINE
from fedbench.tasks import Metric


def height_of(rows: int) -> int:
    """Height in pixels of a chart with a row per method; thirty rows fit on a sheet of paper."""
    return 90 + rows * (30 if rows <= 20 else 22)


OVER_LOCAL = "better than local"
VALUES = ("95 % interval over seeds", "over seeds and clients", "p (adjusted)", "these seeds resolve", "seeds needed")
"""What is beside a difference in the table of a chart's values."""


def forest(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The difference of each method to local training."""
    if study.race is not None:
        over_local = {(row.label, BASELINE): row.verdicts.over_local for row in rows if row.verdicts}
        return _race_forest(study, over_local, OVER_LOCAL, [method for method, _ in over_local])
    found = {row.label: row.over_local for row in rows if row.over_local is not None}
    return _forest(study, found, OVER_LOCAL)


def behind_best(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The difference of the best method to every other; None if `forest` shows the same."""
    if study.race is not None:
        best = f"better than {escape(rows[0].label)}"
        known = {(rows[0].label, row.label): row.verdicts.from_best for row in rows if row.verdicts}
        return _race_forest(study, known, best, [method for _, method in known])
    found = {row.label: row.behind for row in rows if row.behind is not None}
    if rows[0].label == BASELINE or not set(found) - {BASELINE}:
        return None
    return _forest(study, found, f"{escape(rows[0].label)} is better")


def _forest(study: Study, contrasts: Mapping[str, Contrast], what: str) -> go.Figure | None:
    """Differences by label: intervals over seeds (thick), over seeds and clients (thin); the value table has both."""
    if not contrasts:
        return None
    metric, names, found = study.metric, [escape(label) for label in contrasts], [*contrasts.values()]
    title = f"{what} by, {'points' if metric.share else metric.label}"
    fig = figure(height_of(len(found)), xaxis=axis(title, zeroline=True))
    fig.update_layout(yaxis=axis(showgrid=False, type="category", autorange="reversed"))
    values = [[name, *_values(metric, contrast)] for name, contrast in zip(names, found, strict=True)]
    fig.update_layout(meta={"table": {"heads": ["method", title, *VALUES], "rows": values}})
    fig.update_xaxes(zerolinecolor=LIGHT["ink"], zerolinewidth=1)
    for place, width, opacity in ((1, 2, 0.5), (0, 6, 0.35)):
        ends = [_intervals(c)[place] or (c.gain.mean, c.gain.mean) for c in found]
        _spans(fig, names, [(low * metric.factor, high * metric.factor) for low, high in ends], width, opacity)
    fig.add_scatter(x=[c.gain.mean * metric.factor for c in found], y=names, mode="markers", showlegend=False)
    states = [_state(study, c.method, c.other, c.sign, c.sign_alone, c.gain.mean) for c in found]
    fig.data[-1].update(marker=markers(states), text=[difference_text(metric, c) for c in found])
    fig.data[-1].hovertemplate = "%{y}: %{text}<extra></extra>"
    return fig


def _race_forest(
    study: Study, found: Mapping[tuple[str, str], Bound | None], what: str, labels: Sequence[str]
) -> go.Figure | None:
    """Differences of pairs with their simultaneous intervals; colours follow the verdicts. labels: of the pairs."""
    names = [escape(label) for label, bound in zip(labels, found.values(), strict=True) if bound is not None]
    known = {pair: bound for pair, bound in found.items() if bound is not None}
    if not known:
        return None
    metric, bounds = study.metric, [*known.values()]
    title = f"{what} by, {'points' if metric.share else metric.label}"
    fig = figure(height_of(len(names)), xaxis=axis(title, zeroline=True))
    fig.update_layout(yaxis=axis(showgrid=False, type="category", autorange="reversed"))
    ends = [[b.low if isfinite(b.low) else b.mean, b.high if isfinite(b.high) else b.mean] for b in bounds]
    shown = [
        [metric.difference(b.mean), *map(metric.difference, e), str(b.seeds)] for b, e in zip(bounds, ends, strict=True)
    ]
    values = [[name, *own] for name, own in zip(names, shown, strict=True)]
    fig.update_layout(meta={"table": {"heads": ["method", title, "from", "to", "seeds"], "rows": values}})
    fig.update_xaxes(zerolinecolor=LIGHT["ink"], zerolinewidth=1)
    _spans(fig, names, [(low * metric.factor, high * metric.factor) for low, high in ends], 6, 0.35)
    signs = [1 if b.low > 0 else -1 if b.high < 0 else 0 for b in bounds]
    states = [_state(study, *p, sign, 0, b.mean) for (p, b), sign in zip(known.items(), signs, strict=True)]
    fig.add_scatter(x=[b.mean * metric.factor for b in bounds], y=names, mode="markers", showlegend=False)
    fig.data[-1].update(marker=markers(states), text=[f"{m} ({a} to {b})" for m, a, b, _ in shown])
    fig.data[-1].hovertemplate = "%{y}: %{text}<extra></extra>"
    return fig


def _state(study: Study, one: str, other: str, sign: int, alone: int, gain: float) -> tuple[int, int]:
    """The sign of a difference and its sign before the correction; both 0 where there is a doubt."""
    return (0, 0) if (sign or alone) and doubts(study, one, other, gain) else (sign, alone)


def _spans(
    fig: go.Figure, names: Sequence[str], ends: Sequence[tuple[float, float]], width: float, opacity: float
) -> None:
    """One trace with a horizontal line per row. The axis ends beyond the lines, which would look cut off otherwise."""
    x = [value for pair in ends for value in (*round_values(pair), None)]
    y = [name for name in names for _ in range(3)]
    line = {"color": with_opacity(LIGHT["muted"], opacity), "width": width}
    fig.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)
    drawn = [value for trace in fig.data for value in trace.x if value is not None]
    air = 0.03 * (max(drawn) - min(drawn))
    fig.update_xaxes(autorangeoptions={"include": [min(drawn) - air, max(drawn) + air]})


def client_gains(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """Gains of each method's clients over local: range (thin), middle half (thick) and median."""
    metric, gains = study.metric, {}
    for row in rows:
        if (
            (row.over_local or row.verdicts)
            and row.label != BASELINE
            and len(paired := paired_clients(study, row.label))
        ):
            gains[row.label] = metric.gain(paired[study.point], paired["local"])
    if not gains:
        return None
    names, unit = [escape(label) for label in gains], "points" if metric.share else metric.label
    xaxis = axis(f"gain of a client over local training, {unit}", zeroline=True)
    fig = figure(height_of(len(gains)), xaxis=xaxis)
    fig.update_layout(yaxis=axis(showgrid=False, type="category", autorange="reversed"))
    fig.update_xaxes(zerolinecolor=LIGHT["ink"], zerolinewidth=1)
    at = [gain.quantile([0, 0.25, 0.5, 0.75, 1]).tolist() for gain in gains.values()]
    heads = ["method", "least", "lower quartile", "median", "upper quartile", "most", "clients that gain"]
    share = [f"{100 * (gain > 0).mean():.0f} %" for gain in gains.values()]
    values = [[name, *round_values(q), own] for name, q, own in zip(names, at, share, strict=True)]
    fig.update_layout(meta={"table": {"heads": heads, "rows": values}})
    _spans(fig, names, [(q[0], q[4]) for q in at], 2, 0.5)
    _spans(fig, names, [(q[1], q[3]) for q in at], 6, 0.35)
    fig.add_scatter(x=round_values(q[2] for q in at), y=names, mode="markers", showlegend=False)
    fig.data[-1].update(marker={"color": LIGHT["ink"], "size": 10})  # medians have no verdict
    fig.data[-1].text = [f"{(gain > 0).sum()} of {len(gain)} clients gain" for gain in gains.values()]
    fig.data[-1].hovertemplate = "%{y}: median %{x:.3g}, %{text}<extra></extra>"
    return fig


def _intervals(found: Contrast) -> list[tuple[float, float] | None]:
    """The intervals over seeds, and over resampled seeds and clients."""
    low, high = found.gain.low, found.gain.high
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
    return [metric.difference(found.gain.mean), *spans, p, resolves, str(found.seeds_needed or "")]


def tuning_strip(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The validation score of every tuned point, one line per method; the chosen points are filled."""
    tried = {row.label: study.plan.points(row.label) for row in rows}
    tried = {label: entries for label, entries in tried.items() if any(entry.scores.get("val") for entry in entries)}
    if not tried:
        return None
    metric = study.metric
    fig = figure(height_of(len(tried)), xaxis=axis(f"validation {metric.title}"))
    fig.update_layout(yaxis=axis(showgrid=False, type="category", autorange="reversed"))
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
