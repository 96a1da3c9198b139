"""Further figures of every study: clients, seconds, partition. Colours are those of theme.LIGHT."""

from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from fedbench.report.curves import round_values
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.theme import LIGHT, axis, figure, figure_of_rows, hover, score_axis, show_legend, with_opacity
from fedbench.results.tables import BASELINE, clients_at
from fedbench.tasks import Metric

PHASES = {"train": "s3", "eval": "s2", "comm": "s1", "server": "muted", "log": "quiet"}
MOST_ROWS = 40
MOST_PAIRS = 1000


def last_clients(study: Study, method: str, point: str) -> pd.DataFrame:
    """A method's clients at a point in the last evaluated round of each seed."""
    return clients_at(study.clients[method], study.last_rows(method, point)).dropna(subset=[study.test])


def client_strip(study: Study) -> go.Figure | None:
    """All clients of a single method, worst first: both points, joined; the worst tenth is shaded."""
    fit, agg = (
        last_clients(study, study.method, point).set_index(["seed", "client"])[study.test] * study.metric.factor
        for point in ("after_fit", "after_agg")
    )
    both = pd.DataFrame({"fit": fit, "agg": agg}).dropna()
    both = both.sort_values("agg", ascending=study.metric.higher).reset_index()
    if both.empty:
        return None
    positions = list(range(1, len(both) + 1))
    fig = figure(340, yaxis=score_axis(study.metric, [*both["fit"], *both["agg"]]))
    fig.update_layout(xaxis=axis("clients, worst first", showgrid=False, range=[0.3, len(both) + 0.7]))
    fig.update_xaxes(dtick=1 if len(both) <= 20 else None)
    fig.add_vrect(x0=0.5, x1=-(-len(both) // 10) + 0.5, fillcolor=with_opacity(LIGHT["alarm"], 0.1), line_width=0)
    _segments(fig, [(p, p) for p in positions], list(zip(both["fit"], both["agg"], strict=True)), LIGHT["quiet"], 1.2)
    who = [f"client {c}, seed {s}" for c, s in zip(both["client"], both["seed"], strict=True)]
    marks = {"fit": (LIGHT["c1"], "circle-open", "after_fit"), "agg": (LIGHT["accent"], "circle", "after_agg")}
    for key, (colour, symbol, point) in marks.items():
        fig.add_scatter(x=positions, y=round_values(both[key]), mode="markers", text=who, name=POINT_NAMES[point])
        fig.data[-1].update(marker={"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.6}})
        fig.data[-1].update(
            hovertemplate=f"%{{text}}<br>{hover(study.metric)} " + POINT_NAMES[point] + "<extra></extra>"
        )
    show_legend(fig)
    return fig


def _segments(fig: go.Figure, xs: list[tuple[Any, ...]], ys: list[tuple[Any, ...]], colour: str, width: float) -> None:
    """Draws many short lines as one trace."""
    x = [value for pair_ in xs for value in (*pair_, None)]
    y = [value for pair_ in ys for value in (*pair_, None)]
    fig.add_scatter(x=x, y=y, mode="lines", line={"color": colour, "width": width}, hoverinfo="skip", showlegend=False)


def paired_clients(study: Study, method: str) -> pd.DataFrame:
    """Scores as shown, one row per seed and client in both runs: local, after_fit, after_agg (if present), gains."""
    columns = {}
    for point in ("after_fit", "after_agg"):
        if len(both := study.scores.paired_clients(method, BASELINE, point).set_index(["seed", "client"])):
            columns["local"] = both["theirs"] * study.metric.factor
            columns[point] = both["ours"] * study.metric.factor
    paired = pd.DataFrame(columns).dropna()
    if study.point not in paired or "local" not in paired:
        return paired.iloc[:0]
    return paired.assign(gains=study.metric.gain(paired[study.point], paired["local"]) > 0)


def slopes(metric: Metric, paired: pd.DataFrame, colour: str, limits: list[float]) -> go.Figure:
    """Lines from local through both points, one per client; those without a gain differ, the mean is on top."""
    stops = [name for name in ("local", "after_fit", "after_agg") if name in paired]
    names = {"local": "local", "after_fit": "after<br>training", "after_agg": "after<br>aggregation"}
    yaxis = score_axis(metric, limits)
    fig = figure(330, 30, yaxis=yaxis, xaxis=axis(showgrid=False, tickvals=list(range(len(stops)))))
    fig.update_layout(
        xaxis={"ticktext": [names[s] for s in stops], "range": [-0.25, len(stops) - 0.75], "tickangle": 0}
    )
    shown = paired.head(MOST_PAIRS)
    strength = 0.75 if len(shown) <= 40 else max(0.15, 30 / len(shown))
    for gains, tone, dash in ((True, colour, "solid"), (False, LIGHT["alarm"], "dot")):
        rows = shown.loc[shown["gains"] == gains, stops].to_numpy().tolist()
        xs = [tuple(range(len(stops)))] * len(rows)
        _segments(fig, xs, [tuple(row) for row in rows], with_opacity(tone, strength), 1.4)
        fig.data[-1].line.dash = dash
    mean = {"color": LIGHT["ink"], "width": 3}
    fig.add_scatter(x=list(range(len(stops))), y=round_values(paired[stops].mean()), mode="lines+markers", line=mean)
    fig.data[-1].update(marker={"size": 8}, hovertemplate=f"mean {hover(metric)}<extra></extra>")
    return fig


def seconds(study: Study) -> pd.DataFrame:
    """Mean seconds per round and phase, one row per method."""
    means = {method: study.runs[method].timings()[list(PHASES)].apply(pd.to_numeric).mean() for method in study.ordered}
    return pd.DataFrame(means).T.dropna(how="all").fillna(0.0)


def time_bars(study: Study) -> go.Figure | None:
    """Seconds of a round by phase, one bar per method."""
    table = seconds(study)
    if table.empty or table.to_numpy().sum() == 0:
        return None
    height = 130 + (34 if len(table) <= 20 else 22) * len(table)
    fig = figure_of_rows(height, axis("seconds per round"), barmode="stack")
    for phase, colour in PHASES.items():
        fig.add_bar(y=[escape(m) for m in table.index], x=round_values(table[phase]), orientation="h", name=phase)
        fig.data[-1].update(
            width=0.55, marker_color=LIGHT[colour], hovertemplate=f"{phase} %{{x:.3g}} s<extra></extra>"
        )
    show_legend(fig, traceorder="normal")
    return fig


def partition_dots(study: Study) -> go.Figure | None:
    """Training images per client and class of the first seed; the area of a dot is the count."""
    first: dict[str, Any] = next(iter(study.partition.values()), {})
    counts = first.get("class_counts")
    if not counts:
        return None
    public = first.get("public_class_counts")
    lines = [*counts[:MOST_ROWS], *([public] if public else [])]
    rows = [(c, k, n) for c, row in enumerate(lines) for k, n in enumerate(row) if n]
    clients, classes, numbers = zip(*rows, strict=True)
    shown = min(len(counts), MOST_ROWS)
    fig = figure(100 + 24 * len(lines), yaxis=_client_axis(shown, study.flipped_clients, bool(public)))
    fig.update_layout(xaxis=axis("class", showgrid=False, dtick=1 if len(counts[0]) <= 20 else None))
    fig.update_xaxes(range=[-0.6, len(counts[0]) - 0.4])
    tones = dict.fromkeys(study.flipped_clients, LIGHT["alarm"]) | {shown: LIGHT["c2"]}
    colours = [tones.get(client, LIGHT["accent"]) for client in clients]
    dots = {"size": list(numbers), "sizemode": "area", "sizeref": max(numbers) / 20**2, "sizemin": 1.5, "line_width": 0}
    fig.add_scatter(x=list(classes), y=list(clients), mode="markers", marker={**dots, "color": colours})
    fig.data[-1].update(
        customdata=list(numbers), hovertemplate="client %{y}, class %{x}: %{customdata} samples<extra></extra>"
    )
    return fig


def _client_axis(count: int, flipped: list[int], public: bool) -> dict[str, object]:
    names = [f"{client} (flipped)" if client in flipped else str(client) for client in range(count)]
    names += ["public set"] * public
    end = len(names)
    return axis("client", showgrid=False, tickvals=list(range(end)), ticktext=names, range=[end - 0.4, -0.6])
