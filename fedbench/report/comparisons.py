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
"""Columns beside a difference in the table of a chart's values."""


def forest(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The difference of each method to local training."""
    return _forest(study.metric, {row.label: row.over_local for row in rows if row.over_local is not None}, OVER_LOCAL)


def behind_best(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The difference of the best method to every other, or in a sequential test of every other to the best.

    None if `forest` shows the same.
    """
    verdicts = {row.label: row.behind for row in rows if row.behind is not None}
    best = escape(rows[0].label)
    if study.sequential_test is not None:
        # Whoever is out is compared with the method that is ahead of it the most.
        others = {verdict.method for verdict in verdicts.values()} - {rows[0].label}
        ahead = f"{best}, or than who is ahead the most" if others else best
        return _forest(study.metric, verdicts, f"better than {ahead}", view=-1)
    if rows[0].label == BASELINE or not set(verdicts) - {BASELINE}:
        return None
    return _forest(study.metric, verdicts, f"{best} is better")


def _forest(metric: Metric, verdicts: Mapping[str, Verdict], what: str, view: int = 1) -> go.Figure | None:
    """Differences by label with their intervals (thick), and those over resampled seeds and clients (thin), if known.

    Colours follow the verdicts. view: -1 to show the differences of sequential tests from the other methods.
    """
    if not verdicts:
        return None
    title, ordered = difference_title(metric, what), [*verdicts.values()]
    shown = [-v.interval if view < 0 and isinstance(v.interval, Bound) else v.interval for v in ordered]
    thick = [_ends(interval.mean, (interval.low, interval.high)) for interval in shown]
    contrasts = [verdict for verdict in ordered if isinstance(verdict, Contrast)]
    heads: Sequence[str] = VALUES
    values = [_values(metric, contrast) for contrast in contrasts]
    texts = [difference_text(metric, contrast) for contrast in contrasts]
    if not contrasts:
        heads = ("from", "to", "seeds")
        values = [[*map(metric.difference, (o.mean, *e)), str(o.seeds)] for o, e in zip(shown, thick, strict=True)]
        texts = [f"{mean} ({low} to {high})" for mean, low, high, _ in values]
    fig = figure_of_intervals(
        axis(title, **ZERO_LINE),
        [*verdicts],
        [interval.mean * metric.factor for interval in shown],
        thick=[(low * metric.factor, high * metric.factor) for low, high in thick],
        thin=[
            (low * metric.factor, high * metric.factor)
            for low, high in (_ends(c.interval.mean, c.resampled or (None, None)) for c in contrasts)
        ],
        heads=["method", title, *heads],
        values=values,
    )
    fig.data[-1].update(marker=markers(ordered, view), text=texts)
    return fig


def _ends(mean: float, ends: tuple[float | None, float | None]) -> tuple[float, float]:
    """The ends of an interval that are drawn: the mean in place of those that are unknown or infinite."""
    low, high = (mean if end is None or not isfinite(end) else end for end in ends)
    return low, high


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
    rows = [[name, *cells] for name, cells in zip(names, values, strict=True)]
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
        if (
            (row.over_local or row.standing)
            and row.label != BASELINE
            and len(paired := paired_clients(study, row.label))
        ):
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
        values=[[*round_values(q), gaining] for q, gaining in zip(at, share, strict=True)],
    )
    fig.data[-1].text = [f"{(gain > 0).sum()} of {len(gain)} clients gain" for gain in gains.values()]
    fig.data[-1].hovertemplate = "%{y}: median %{x:.3g}, %{text}<extra></extra>"
    return fig


def _intervals(contrast: Contrast) -> list[tuple[float, float] | None]:
    """The interval of a difference, and the one over resampled seeds and clients."""
    low, high = contrast.interval.low, contrast.interval.high
    return [None if low is None or high is None else (low, high), contrast.resampled]


def difference_text(metric: Metric, contrast: Contrast) -> str:
    """A difference in words, with both intervals."""
    difference, seeds, clients, p, *_ = _values(metric, contrast)
    lines = [f"{name} {value}" for name, value in zip(VALUES, (seeds, clients, p), strict=False) if value]
    return "<br>".join([difference, *lines])


def _values(metric: Metric, contrast: Contrast) -> list[str]:
    """A difference and its VALUES; unknown values are empty."""
    spans = [" to ".join(map(metric.difference, ends or ())) for ends in _intervals(contrast)]
    p = "" if contrast.p_adjusted is None else p_text(contrast.p_adjusted).removeprefix("= ")
    resolves = "" if contrast.resolves is None else metric.difference(contrast.resolves).lstrip("+")
    return [metric.difference(contrast.interval.mean), *spans, p, resolves, str(contrast.seeds_needed or "")]


def tuning_strip(study: Study, rows: Sequence[LeaderboardRow]) -> go.Figure | None:
    """The validation score of every tuned point, one line per method; the chosen points are filled."""
    candidates = {row.label: study.plan.points(row.label) for row in rows}
    candidates = {
        label: entries for label, entries in candidates.items() if any(entry.scores.get("val") for entry in entries)
    }
    if not candidates:
        return None
    metric = study.metric
    fig = figure_of_rows(height_of(len(candidates)), axis(f"validation {metric.title}"))
    for label, entries in candidates.items():
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
