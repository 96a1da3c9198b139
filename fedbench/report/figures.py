"""Figures that every study has: accuracy curves, clients, cost, partition. Colours are those of theme.LIGHT."""

from collections.abc import Iterable
from html import escape

import pandas as pd
import plotly.graph_objects as go

from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.theme import LIGHT, axis, dash_of, faded, figure, hover, label_ends, round_axis, score_axis
from fedbench.results.summary import counted_participants
from fedbench.results.tables import BASELINE, LAST, clients_at, pair
from fedbench.tasks import Metric

PHASES = {"train": "s3", "eval": "s2", "comm": "s1", "server": "muted", "log": "quiet"}
MOST_ROWS = 40
MOST_PAIRS = 1000


def seed_curve(metric: Metric, metrics: pd.DataFrame, point: str) -> pd.DataFrame:
    """Per round from 1 on, as shown: mean, lowest and highest over seeds, of the rounds that the most seeds reached."""
    value = f"test_{metric.name}"
    rows = metrics[(metrics["point"] == point) & (metrics["round"] > 0)].dropna(subset=[value])
    curve = rows.groupby("round")[value].agg(["mean", "min", "max", "count"])
    curve = curve[curve["count"] == curve["count"].max()]
    return (curve[["mean", "min", "max"]] * metric.factor).reset_index()


def method_curves(study: Study, point: str, limits: list[float]) -> go.Figure | None:
    """Test score over rounds at one point, a curve per method with the band from lowest to highest seed."""
    curves = {method: seed_curve(study.metric, frame, point) for method, frame in study.metrics.items()}
    return _curves(study.metric, {m: (c, study.colours[m], dash_of(m)) for m, c in curves.items() if len(c)}, limits)


def point_curves(study: Study) -> go.Figure | None:
    """Test score over rounds of a single method, a curve per evaluation point."""
    frame = study.metrics.get(study.method)
    if frame is None:
        return None
    colours = {"after_agg": LIGHT["accent"], "after_fit": LIGHT["c1"], "global": LIGHT["c2"]}
    curves = {
        name: (seed_curve(study.metric, frame, point), colours[point], "solid") for point, name in POINT_NAMES.items()
    }
    return _curves(study.metric, {n: curve for n, curve in curves.items() if len(curve[0])}, curve_limits(study))


def curve_limits(study: Study) -> list[float]:
    """Lowest and highest score of all curves as shown, so that panels share their axis."""
    curves = [seed_curve(study.metric, frame, point) for frame in study.metrics.values() for point in POINT_NAMES]
    known = [curve for curve in curves if len(curve)]
    return [min(c["min"].min() for c in known), max(c["max"].max() for c in known)] if known else [0, 100]


def _curves(metric: Metric, curves: dict[str, tuple[pd.DataFrame, str, str]], limits: list[float]) -> go.Figure | None:
    if not curves:
        return None
    last = max(curve["round"].max() for curve, _, _ in curves.values())
    fig = figure(360, xaxis=round_axis(last), yaxis=score_axis(metric, limits))
    fig.update_layout(hovermode="x unified")
    loud = [(escape(n), c["mean"].iloc[-1], colour) for n, (c, colour, _) in curves.items() if colour != LIGHT["quiet"]]
    for name, (curve, colour, dash) in sorted(curves.items(), key=lambda item: item[1][1] != LIGHT["quiet"]):
        if colour != LIGHT["quiet"]:
            _band(fig, curve, colour)
        mode = "lines+markers" if len(curve) == 1 else "lines"
        line = {"color": colour, "width": 1.2 if colour == LIGHT["quiet"] else 2.4, "dash": dash}
        fig.add_scatter(x=_list(curve["round"]), y=_list(curve["mean"]), mode=mode, line=line, name=escape(name))
        fig.data[-1].hovertemplate = hover(metric)
    label_ends(fig, loud)
    return fig


def _band(fig: go.Figure, curve: pd.DataFrame, colour: str) -> None:
    if (curve["max"] - curve["min"]).max() == 0:
        return
    rounds = _list(curve["round"])
    edge = [*_list(curve["max"]), *_list(curve["min"])[::-1]]
    fig.add_scatter(x=rounds + rounds[::-1], y=edge, fill="toself", fillcolor=faded(colour, 0.14), mode="lines")
    fig.data[-1].update(line={"width": 0}, hoverinfo="skip", showlegend=False)


def _list(values: Iterable) -> list:
    return pd.Series(values).tolist()


def last_clients(study: Study, method: str, point: str) -> pd.DataFrame:
    """The clients of a method at a point in the last evaluated round of each seed."""
    return clients_at(study.clients[method], study.last(method, point)).dropna(subset=[study.test])


def client_strip(study: Study) -> go.Figure | None:
    """Every client of a single method, the worst first: both points, joined; the worst tenth is shaded."""
    fit, agg = (
        last_clients(study, study.method, point).set_index(["seed", "client"])[study.test] * study.metric.factor
        for point in ("after_fit", "after_agg")
    )
    both = pd.DataFrame({"fit": fit, "agg": agg}).dropna()
    both = both.sort_values("agg", ascending=study.metric.higher).reset_index()
    if both.empty:
        return None
    place = list(range(1, len(both) + 1))
    fig = figure(340, yaxis=score_axis(study.metric, [*both["fit"], *both["agg"]]))
    fig.update_layout(xaxis=axis("clients, the worst first", showgrid=False, range=[0.3, len(both) + 0.7]))
    fig.add_vrect(x0=0.5, x1=-(-len(both) // 10) + 0.5, fillcolor=faded(LIGHT["alarm"], 0.1), line_width=0)
    _segments(fig, [(p, p) for p in place], list(zip(both["fit"], both["agg"], strict=True)), LIGHT["quiet"], 1.2)
    who = [f"client {c}, seed {s}" for c, s in zip(both["client"], both["seed"], strict=True)]
    marks = {"fit": (LIGHT["c1"], "circle-open", "after_fit"), "agg": (LIGHT["accent"], "circle", "after_agg")}
    for key, (colour, symbol, point) in marks.items():
        fig.add_scatter(x=place, y=_list(both[key]), mode="markers", text=who, name=POINT_NAMES[point])
        fig.data[-1].update(marker={"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.6}})
        fig.data[-1].update(
            hovertemplate=f"%{{text}}<br>{hover(study.metric)} " + POINT_NAMES[point] + "<extra></extra>"
        )
    fig.update_layout(showlegend=True, legend=legend())
    return fig


def legend() -> dict[str, object]:
    """One line above the plot."""
    return {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 13, "color": LIGHT["ink"]}}


def _segments(fig: go.Figure, xs: list[tuple], ys: list[tuple], colour: str, width: float) -> None:
    """Many short lines as one trace."""
    x = [value for pair_ in xs for value in (*pair_, None)]
    y = [value for pair_ in ys for value in (*pair_, None)]
    fig.add_scatter(x=x, y=y, mode="lines", line={"color": colour, "width": width}, hoverinfo="skip", showlegend=False)


def paired_clients(study: Study, method: str) -> pd.DataFrame:
    """As shown, a row per seed and client that both have: local, after_fit, after_agg (what exists), gains."""
    columns = {}
    for point in ("after_fit", "after_agg"):
        ours, theirs = pair(study.metric, method, BASELINE, point, LAST, study.metrics, study.clients)
        columns["local"] = theirs.set_index(["seed", "client"])[study.test] * study.metric.factor
        columns[point] = ours.set_index(["seed", "client"])[study.test] * study.metric.factor
    paired = pd.DataFrame(columns).dropna(axis=1, how="all").dropna()
    if study.point not in paired or "local" not in paired:
        return paired.iloc[:0]
    return paired.assign(gains=study.metric.gain(paired[study.point], paired["local"]) > 0)


def slopes(metric: Metric, paired: pd.DataFrame, colour: str, limits: list[float]) -> go.Figure:
    """Lines from local through both points, one per client; those that do not gain are drawn apart, the mean on top."""
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
        _segments(fig, xs, [tuple(row) for row in rows], faded(tone, strength), 1.4)
        fig.data[-1].line.dash = dash
    mean = {"color": LIGHT["ink"], "width": 3}
    fig.add_scatter(x=list(range(len(stops))), y=_list(paired[stops].mean()), mode="lines+markers", line=mean)
    fig.data[-1].update(marker={"size": 8}, hovertemplate=f"mean {hover(metric)}<extra></extra>")
    return fig


def traffic(study: Study, method: str) -> pd.DataFrame:
    """Per round, mean over seeds: bytes sent so far per participant, both ways; score as shown at the study's point."""
    frame = study.metrics[method]
    rows = frame[(frame["point"] == "after_fit") & (frame["round"] > 0)]
    count = counted_participants(study.clients[method], study.runs[method].config(), rows)
    sent = rows.assign(sent=(rows["bytes_up"].fillna(0) + rows["bytes_down"].fillna(0)) / count)
    sent["sent"] = sent.groupby("seed")["sent"].cumsum()
    curve = seed_curve(study.metric, frame, study.point)[["round", "mean"]].rename(columns={"mean": "score"})
    return sent.groupby("round")["sent"].mean().reset_index().merge(curve, on="round")


def cost_curves(study: Study) -> go.Figure | None:
    """Score against traffic so far, a curve per method; without traffic a level line."""
    costs = {method: traffic(study, method) for method in study.metrics}
    most = max((cost["sent"].max() for cost in costs.values() if len(cost)), default=0)
    if not most > 0:
        return None
    values = [v for cost in costs.values() for v in cost["score"]]
    fig = figure(340, yaxis=score_axis(study.metric, values), hovermode="closest")
    unit, scale = next((u, f) for u, f in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)) if most >= f or f == 1)
    fig.update_layout(xaxis=axis(f"traffic per participant so far, {unit}", showgrid=False, rangemode="tozero"))
    known = {method: cost.assign(sent=cost["sent"] / scale) for method, cost in costs.items() if len(cost)}
    for method, cost in known.items():
        _cost_curve(study.metric, fig, method, cost, study.colours[method], most / scale, unit)
    loud = {m: cost for m, cost in known.items() if study.colours[m] != LIGHT["quiet"]}
    label_ends(fig, [(escape(m), cost["score"].iloc[-1], study.colours[m]) for m, cost in loud.items()])
    return fig


def _cost_curve(
    metric: Metric, fig: go.Figure, method: str, cost: pd.DataFrame, colour: str, most: float, unit: str
) -> None:
    x, y = _list(cost["sent"]), _list(cost["score"])
    if x[-1] == 0:  # nothing is ever sent: the final level is there from the start
        x, y = [0, most], [y[-1]] * 2
    fig.add_scatter(x=x, y=y, mode="lines", line={"color": colour, "width": 2.4, "dash": dash_of(method)})
    told = f"{escape(method)}<br>%{{x:.3g}} {unit}, {hover(metric)}<extra></extra>"
    fig.data[-1].update(name=escape(method), hovertemplate=told)


def seconds(study: Study) -> pd.DataFrame:
    """Mean seconds per round and phase, a row per method."""
    means = {method: study.runs[method].timings()[list(PHASES)].apply(pd.to_numeric).mean() for method in study.metrics}
    return pd.DataFrame(means).T.dropna(how="all").fillna(0.0)


def time_bars(study: Study) -> go.Figure | None:
    """Where the seconds of a round go, a bar per method."""
    table = seconds(study)
    if table.empty or table.to_numpy().sum() == 0:
        return None
    fig = figure(130 + 34 * len(table), barmode="stack", xaxis=axis("seconds per round"))
    fig.update_layout(yaxis=axis(showgrid=False, autorange="reversed", type="category"))
    for phase, colour in PHASES.items():
        fig.add_bar(y=[escape(m) for m in table.index], x=_list(table[phase]), orientation="h", name=phase, width=0.55)
        fig.data[-1].update(marker_color=LIGHT[colour], hovertemplate=f"{phase} %{{x:.3g}} s<extra></extra>")
    fig.update_layout(showlegend=True, legend={**legend(), "traceorder": "normal"}, margin_t=36)
    return fig


def partition_dots(study: Study) -> go.Figure | None:
    """Training images per client and class of the first seed; the area of a dot is the count."""
    first = next(iter(study.partition.values()), None)
    counts = (first or {}).get("class_counts")
    if not counts:
        return None
    rows = [(c, k, n) for c, row in enumerate(counts[:MOST_ROWS]) for k, n in enumerate(row) if n]
    clients, classes, numbers = zip(*rows, strict=True)
    shown = min(len(counts), MOST_ROWS)
    fig = figure(100 + 24 * shown, yaxis=_client_axis(shown, study.flipped))
    fig.update_layout(xaxis=axis("class", showgrid=False, dtick=1 if len(counts[0]) <= 20 else None))
    fig.update_xaxes(range=[-0.6, len(counts[0]) - 0.4])
    colours = [LIGHT["alarm"] if client in study.flipped else LIGHT["accent"] for client in clients]
    dots = {"size": list(numbers), "sizemode": "area", "sizeref": max(numbers) / 20**2, "sizemin": 1.5, "line_width": 0}
    fig.add_scatter(x=list(classes), y=list(clients), mode="markers", marker={**dots, "color": colours})
    fig.data[-1].update(
        customdata=list(numbers), hovertemplate="client %{y}, class %{x}: %{customdata} images<extra></extra>"
    )
    return fig


def _client_axis(count: int, flipped: list[int]) -> dict[str, object]:
    names = [f"{client} (flipped)" if client in flipped else str(client) for client in range(count)]
    return axis("client", showgrid=False, tickvals=list(range(count)), ticktext=names, range=[count - 0.4, -0.6])
