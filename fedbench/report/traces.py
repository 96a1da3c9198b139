"""Figures of what a method traced, read from traces.parquet.

A method declares the charts of its traces (`results/trace.py`), some in a section of their own. Others are drawn by
their form: NAME over rounds, and NAME/NUMBER of a client and another client, class or endpoint as a matrix, of the
server as a line for each number.
"""

from collections.abc import Callable, Iterator, Mapping
from re import escape

import pandas as pd
import plotly.graph_objects as go

from fedbench.config.words import plural
from fedbench.report.curves import round_values, thin_out
from fedbench.report.parts import ChartSection, charts
from fedbench.report.study import Study
from fedbench.report.theme import (
    LIGHT,
    METHOD_COLOURS,
    SCALE,
    axis,
    figure,
    figure_of_rows,
    label_ends,
    round_axis,
    show_legend,
    with_opacity,
)
from fedbench.results.trace import LAST_ROUND, Trace

MOST_LINES = 60
MOST_CELLS = 20
Drawn = Iterator[tuple[str, str, go.Figure | None, str]]
"""Charts by id, title, figure and caption."""


def trace_sections(study: Study) -> Iterator[ChartSection]:
    """The sections that traces declare, and that of all other traces."""
    traces = study.trace_charts
    for title in dict.fromkeys(trace.section for trace in traces.values() if trace.section):
        inside = {name: trace for name, trace in traces.items() if trace.section == title}
        name, first = next(iter(inside.items()))
        yield ChartSection(name, title, charts(*declared(study, inside)), first.intro)
    others = {name: trace for name, trace in traces.items() if not trace.section}
    shown = charts(*declared(study, others), *undeclared(study.traces, traces))
    yield ChartSection("inside", f"Inside {study.method}", shown, "Mean over clients; bands: lowest to highest client.")


def declared(study: Study, traces: Mapping[str, Trace]) -> Drawn:
    """The charts of these traces in their order; traces of one chart are drawn together."""
    together: dict[str, dict[str, Trace]] = {}
    for name, trace in traces.items():
        together.setdefault(trace.chart or name, {})[name] = trace
    for chart, inside in together.items():
        ((name, first), *_) = inside.items()
        if first.form == "mask":
            yield from mask_charts(study.traces, name, first, traces)
        elif first.form == "flipped":
            yield chart, first.title, loss_lines(study, inside), first.note
        elif first.form != "location":  # which `mask_charts` draws
            yield chart, first.title, FORMS[first.form](study, name, first), first.note


def undeclared(traces: pd.DataFrame, known: Mapping[str, Trace]) -> Drawn:
    """The charts of other traces, by their form."""
    server = traces["client"] < 0
    for name in numbered_names(traces[~server], known):
        yield f"pairs-{name}", name, matrix(traces, name, "number", factor=1), LAST_ROUND
    for name in numbered_names(traces[server], known):
        yield f"numbers-{name}", name, number_lines(traces[server], name), "First seed."
    plain = [name for name in traces["name"].unique() if "/" not in name or name.startswith("logged/")]
    for i, name in enumerate(sorted({*plain} - known.keys())):
        yield f"trace-{i}", name.removeprefix("logged/"), lines(traces, name), ""


def mask_charts(traces: pd.DataFrame, name: str, trace: Trace, known: Mapping[str, Trace]) -> Drawn:
    """The share of parameters in a mask: over rounds, and by layer, in place of which a location may be drawn."""
    share = trace.label
    yield trace.chart, trace.title, lines(traces, name, f"{share} of the parameters, %", 100), trace.note
    yield "mask-layers", "By layer, last round", layer_bars(traces, name, f"{share} of the layer, %"), ""
    where = [(other, declared.label) for other, declared in known.items() if declared.form == "location"]
    maps = (layer_map(traces, other, label) for other, label in [*where, (name, share)])
    first = next((drawn for drawn in maps if drawn is not None), None)
    yield "mask-rounds", "By layer over rounds", first, "Mean over clients and seeds."


def _curve(study: Study, name: str, trace: Trace) -> go.Figure | None:
    return lines(study.traces, name, trace.label, 100 if trace.is_share else 1)


def _pairs(study: Study, name: str, trace: Trace) -> go.Figure | None:
    relative = trace.form == "relative"
    return matrix(study.traces, name, trace.label, relative, 100 if relative or trace.is_share else 1)


def by_round(traces: pd.DataFrame, name: str, server: bool = False) -> pd.DataFrame:
    """A trace as rounds x clients, mean over seeds; of the server as a single column."""
    rows = traces[(traces["name"] == name) & ((traces["client"] < 0) == server)]
    return thin_out(rows.pivot_table(index="round", columns="client", values="value", aggfunc="mean"))


def client_lines(study: Study, name: str, trace: Trace) -> go.Figure | None:
    """A trace over rounds, one line per client; clients with permuted labels are highlighted and named.

    The others are named once, or, if there are a few and none is flipped, each.
    """
    table = by_round(study.traces, name)
    if table.empty:
        return None
    clients = [int(client) for client in table.columns]
    flipped = [client for client in study.flipped_clients if client in clients]
    others = [client for client in clients if client not in flipped][:MOST_LINES]
    top = max(1.0, float(table[[*flipped, *others]].max().max()))
    symbol, yaxis = trace.label.partition(",")[0], axis(trace.label, range=[-0.03 * top, 1.06 * top])
    fig = figure(360, yaxis=yaxis, xaxis=round_axis(table.index.max()))
    quiet, loud = {"color": with_opacity(LIGHT["accent"], 0.55), "width": 1.6}, {"color": LIGHT["alarm"], "width": 3.2}
    for client in [*others, *flipped]:
        values, stands_out = table[client].dropna(), client in flipped
        line = loud if stands_out else quiet
        fig.add_scatter(x=values.index.tolist(), y=values.tolist(), mode="lines", line=line)
        fig.data[-1].update(name=f"client {client}: flipped", showlegend=stands_out)
        fig.data[-1].hovertemplate = f"client {client}<br>round %{{x}}: {symbol} = %{{y:.3f}}<extra></extra>"
    last = table.ffill().iloc[-1]
    names = [(f"client {client}: flipped", float(last[client]), LIGHT["alarm"]) for client in flipped]
    together = f"{'other' if flipped else 'all'} {plural(len(others), 'client')}"
    if flipped and others:
        fig.data[0].update(name=together, showlegend=True)
    if others and (flipped or len(others) > 12):
        names.append((together, float(last[others].median()), LIGHT["accent"]))
    elif others:
        names = [(f"client {client}", float(last[client]), LIGHT["accent"]) for client in others]
    label_ends(fig, names)
    return fig


def loss_lines(study: Study, traces: Mapping[str, Trace]) -> go.Figure | None:
    """Losses over rounds, mean over the clients with permuted labels and over the others; the first one is solid."""
    tables = {trace.label: by_round(study.traces, name) for name, trace in traces.items()}
    solid = next(iter(tables))
    if any(table.empty for table in tables.values()):
        return None
    last = max(table.index.max() for table in tables.values())
    fig = figure(360, xaxis=round_axis(last), yaxis=axis("loss", rangemode="tozero"))
    for name, table in tables.items():
        known = [int(client) for client in table.columns]
        flipped = [client for client in study.flipped_clients if client in known]
        groups = {
            "flipped": (flipped, LIGHT["alarm"]),
            "others": ([c for c in known if c not in flipped], LIGHT["accent"]),
        }
        for group, (clients, colour) in groups.items():
            if clients:
                mean = table.loc[:, clients].mean(axis=1)
                line = {"color": colour, "width": 2.2, "dash": "solid" if name == solid else "dash"}
                fig.add_scatter(x=mean.index.tolist(), y=mean.tolist(), mode="lines", line=line)
                fig.data[-1].name = f"{name}, {group}" if flipped else name
    fig.update_layout(hovermode="x unified")
    show_legend(fig)
    return fig


def lines(traces: pd.DataFrame, name: str, title: str = "", factor: float = 1) -> go.Figure | None:
    """A trace over rounds: the mean over clients, with the band from lowest to highest, or the server's value.

    factor: 100 for shares, which are in %.
    """
    table = by_round(traces, name)
    if table.empty:
        table = by_round(traces, name, server=True)
    if table.empty:
        return None
    table = table * factor
    fig = figure(300, xaxis=round_axis(table.index.max()), yaxis=axis(title, rangemode="tozero"))
    rounds, low, high = table.index.tolist(), table.min(axis=1).tolist(), table.max(axis=1).tolist()
    fig.add_scatter(
        x=rounds + rounds[::-1], y=high + low[::-1], fill="toself", fillcolor=with_opacity(LIGHT["accent"], 0.14)
    )
    fig.data[-1].update(mode="lines", line={"width": 0}, hoverinfo="skip")
    fig.add_scatter(
        x=rounds, y=table.mean(axis=1).tolist(), mode="lines", line={"color": LIGHT["accent"], "width": 2.4}
    )
    fig.data[-1].hovertemplate = f"round %{{x}}: %{{y:.3g}}{' %' if factor == 100 else ''}<extra></extra>"
    return fig


def numbered_names(traces: pd.DataFrame, known: Mapping[str, Trace]) -> list[str]:
    """The names of traces NAME/NUMBER that are not declared; what modules log is drawn as curves."""
    names = traces["name"].str.extract(r"^([^/]+)/\d+$")[0].dropna()
    return sorted({*names} - known.keys() - {"logged"})


def number_lines(traces: pd.DataFrame, name: str) -> go.Figure:
    """The server's traces NAME/NUMBER over the rounds of the first seed, a line for each number."""
    rows = traces[(traces["seed"] == traces["seed"].min()) & traces["name"].str.fullmatch(rf"{escape(name)}/\d+")]
    number = rows["name"].str.removeprefix(f"{name}/").astype(int)
    table = thin_out(rows.assign(number=number).pivot_table(index="round", columns="number", values="value"))
    fig = figure(300, xaxis=round_axis(table.index.max()), yaxis=axis("", rangemode="tozero"))
    for i, (number, values) in enumerate(table.items()):
        colour = LIGHT[METHOD_COLOURS[i % len(METHOD_COLOURS)]]
        fig.add_scatter(x=table.index.tolist(), y=values.astype(object).where(values.notna(), None).tolist())
        fig.data[-1].update(mode="lines", name=str(number), line={"color": colour, "width": 2})
    fig.update_layout(hovermode="x unified")
    show_legend(fig)
    return fig


def cluster_map(traces: pd.DataFrame, name: str) -> go.Figure | None:
    """The cluster of every client over the rounds of the first seed, clients x rounds."""
    rows = traces[(traces["name"] == name) & (traces["seed"] == traces["seed"].min())]
    if rows.empty:
        return None
    table = thin_out(rows.pivot_table(index="round", columns="client", values="value")).T
    fig = figure_of_rows(min(560, 110 + 24 * len(table)), axis("round", showgrid=False))
    fig.update_yaxes(title_text="client")
    cells = table.astype(object).where(table.notna(), None).to_numpy().tolist()
    fig.add_heatmap(x=table.columns.tolist(), y=[*map(str, table.index)], z=cells, colorscale=SCALE, ygap=1)
    fig.data[-1].update(hovertemplate="client %{y}, round %{x}: cluster %{z:.0f}<extra></extra>", hoverongaps=False)
    fig.data[-1].colorbar = {"title": {"text": "cluster"}, "thickness": 10, "outlinewidth": 0, "dtick": 1}
    return fig


def layer_bars(traces: pd.DataFrame, name: str, title: str) -> go.Figure | None:
    """The share in each layer in the last round, in %: mean over clients and seeds, in layer order."""
    rows = traces[traces["name"].str.startswith(f"{name}/")]
    if rows.empty:
        return None
    rows = rows[rows["round"] == rows["round"].max()]
    shares = rows.groupby("name", sort=False)["value"].mean() * 100
    names = [layer.removeprefix(f"{name}/") for layer in shares.index]
    fig = figure_of_rows(90 + 24 * len(names), axis(title, rangemode="tozero"), right=48, bargap=0.4)
    fig.add_bar(y=names, x=shares.tolist(), orientation="h", marker_color=LIGHT["accent"], texttemplate="%{x:.1f}")
    fig.data[-1].update(textposition="outside", cliponaxis=False, hovertemplate="%{y}: %{x:.2f} %<extra></extra>")
    return fig


def layer_map(traces: pd.DataFrame, name: str, label: str) -> go.Figure | None:
    """Shares NAME/LAYER, layers x rounds, over clients and seeds; None for a single round. label: what they are."""
    rows = traces[traces["name"].str.startswith(f"{name}/")]
    if rows["round"].nunique() < 2:
        return None
    rows = rows.assign(name=rows["name"].str.removeprefix(f"{name}/"))
    layers = [*rows["name"].unique()]
    table = rows.pivot_table(index="round", columns="name", values="value", aggfunc="mean")
    shown = thin_out(table)[layers].T * 100
    fig = figure_of_rows(110 + 24 * len(layers), axis("round", showgrid=False))
    cells = [round_values(row) for row in shown.to_numpy().tolist()]
    fig.add_heatmap(x=shown.columns.tolist(), y=layers, z=cells, colorscale=SCALE, zmin=0)
    fig.data[-1].hovertemplate = f"%{{y}}, round %{{x}}: %{{z:.1f}} % {label}<extra></extra>"
    fig.data[-1].colorbar = PERCENT
    return fig


def matrix(
    traces: pd.DataFrame, name: str, across: str, relative: bool = False, factor: float = 100
) -> go.Figure | None:
    """Traces NAME/NUMBER of the clients in the last round of the first seed: clients x numbers.

    relative: to the highest of each client. factor: 100 for shares, which are in %.
    """
    rows = traces[traces["name"].str.fullmatch(rf"{escape(name)}/\d+") & (traces["client"] >= 0)]
    if rows.empty:
        return None
    rows = rows[rows["seed"] == rows["seed"].min()]
    rows = rows[rows["round"] == rows["round"].max()]
    other = rows["name"].str.removeprefix(f"{name}/").astype(int)
    table = rows.assign(other=other).pivot_table(index="client", columns="other", values="value")
    if relative:
        table = table.div(table.max(axis=1), axis=0)
    cells = (table * factor).astype(object).where(table.notna(), None).to_numpy().tolist()
    fig = figure_of_rows(min(560, 110 + 30 * len(cells)), axis(across, showgrid=False, type="category"))
    fig.update_yaxes(title_text="client")
    form, exact, unit = ("%{z:.0f}", "%{z:.1f} %", "%") if factor == 100 else ("%{z:.2g}", "%{z:.3g}", "")
    text = form if len(cells) <= MOST_CELLS else None
    fig.add_heatmap(
        x=[*map(str, table.columns)],
        y=[*map(str, table.index)],
        z=cells,
        colorscale=SCALE,
        colorbar={**PERCENT, "title": {"text": unit}},
        showscale=text is None,
        texttemplate=text,
        xgap=1,
        ygap=1,
    )
    fig.data[-1].update(hovertemplate=f"client %{{y}}, {across} %{{x}}: {exact}<extra></extra>", hoverongaps=False)
    return fig


PERCENT = {"title": {"text": "%"}, "thickness": 10, "outlinewidth": 0}
"""The bar of colours."""
FORMS: Mapping[str, Callable[[Study, str, Trace], go.Figure | None]] = {
    "curve": _curve,
    "clients": client_lines,
    "layers": lambda study, name, trace: layer_bars(study.traces, name, trace.label),
    "pairs": _pairs,
    "relative": _pairs,
    "clusters": lambda study, name, trace: cluster_map(study.traces, name),
}
"""The function that draws a trace, by its form."""
