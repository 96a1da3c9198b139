"""Figures of what a method traced, read from traces.parquet.

A trace is drawn by its form: NAME over rounds, NAME/LAYER as shares of layers, and NAME/NUMBER of a client and another
client, class or endpoint as a matrix, of the server as a line for each number. Some have words of their own here, and
those of fedmosaic a section.
"""

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

MOST_LINES = 60
MOST_CELLS = 20
SHARES = {
    "personal_share": "private share",
    "critical_share": "critical share",
    "active_share": "share in use",
    "trained_share": "trained share",
}
"""Traces of masks and their labels; NAME/LAYER is the value within a layer."""
LOCATION = "personal_location"
"""Traces named personal_location/LAYER: the share of all personal parameters that are in a layer."""
MATRICES = ("weight", "head_weight", "mixture", "overlap", "head_sensitivity")
"""Traces NAME/NUMBER of clients with words of their own."""
IN_SECTION = ("lambda", "loss_private", "loss_public")
"""Traces of the section on lambda."""


def lambda_part(study: Study) -> ChartSection:
    """What fedmosaic traces: the weight of the consensus, and the losses that it follows from."""
    found = [("lambda", "λ per client", lambda_lines(study), "")]
    found.append(("losses", "Loss on private and on public data", loss_lines(study), ""))
    intro = "Weight of the consensus in each client's loss; near 0 the client trains alone. Mean over seeds."
    return ChartSection("lambda", "Trust in the consensus", charts(*found) if found[0][2] else [], intro)


def inside_part(study: Study) -> ChartSection:
    """Everything else that a method traces."""
    traces = study.traces
    mask = next((name for name in SHARES if (traces["name"] == name).any()), "")
    share, last = SHARES.get(mask, ""), "Last round of the first seed."
    told = "Compared with the public set's labels, which no client learns from."
    own = {
        mask: ("mask-share", "Share of parameters in the mask", f"{share} of the parameters, %", 100, ""),
        "collaborators": ("collaborators", "Collaborators", "collaborators per client", 1, ""),
        "agreement": ("agreement", "Agreement with the consensus", "agreement with the consensus, %", 100, ""),
        "consensus_accuracy": ("consensus", "Accuracy of the consensus", "correct voted labels, %", 100, told),
    }
    shares, *over_rounds = (
        (name, title, lines(traces, trace, upright, factor), caption)
        for trace, (name, title, upright, factor, caption) in own.items()
    )
    plain = [name for name in traces["name"].unique() if "/" not in name or name.startswith("logged/")]
    others = sorted({*plain} - {*own, *SHARES, *IN_SECTION, "cluster"})
    server = traces["client"] < 0
    agreement = layer_bars(traces, "mask_agreement", "also selected by another client, %")
    weights = matrix(traces, "weight", "takes from client") or matrix(traces, "head_weight", "takes from client")
    mixture, rows = matrix(traces, "mixture", "endpoint"), matrix(traces, "head_sensitivity", "class", relative=True)
    made = charts(
        shares,
        ("mask-layers", "By layer, last round", layer_bars(traces, mask, f"{share} of the layer, %"), ""),
        ("mask-rounds", "By layer over rounds", layer_map(traces), "Mean over clients and seeds."),
        ("mask-agreement", "Agreement of masks by layer", agreement, "Last round."),
        ("overlap", "Overlap of masks, %", matrix(traces, "overlap", "other client"), last),
        ("weights", "Weights of other clients, %", weights, last),
        ("mixture", "Weights of the endpoints, %", mixture, last),
        ("sensitivity", "Sensitivity of the classifier's rows, % of the highest", rows, ""),
        ("clusters", "Cluster of every client", cluster_map(traces), "First seed."),
        *over_rounds,
        *(
            (f"pairs-{name}", name, matrix(traces, name, "number", factor=1), last)
            for name in numbered_names(traces[~server])
        ),
        *(
            (f"numbers-{name}", name, number_lines(traces[server], name), "First seed.")
            for name in numbered_names(traces[server])
        ),
        *((f"trace-{i}", name.removeprefix("logged/"), lines(traces, name), "") for i, name in enumerate(others)),
    )
    return ChartSection("inside", f"Inside {study.method}", made, "Mean over clients; bands: lowest to highest client.")


def by_round(traces: pd.DataFrame, name: str, server: bool = False) -> pd.DataFrame:
    """A trace as rounds x clients, mean over seeds; of the server as a single column."""
    rows = traces[(traces["name"] == name) & ((traces["client"] < 0) == server)]
    return thin_out(rows.pivot_table(index="round", columns="client", values="value", aggfunc="mean"))


def lambda_lines(study: Study) -> go.Figure | None:
    """Lambda over rounds, one line per client; clients with permuted labels are highlighted and named.

    The others are named once, or, if there are a few and none is flipped, each.
    """
    table = by_round(study.traces, "lambda")
    if table.empty:
        return None
    clients = [int(client) for client in table.columns]
    flipped = [client for client in study.flipped_clients if client in clients]
    others = [client for client in clients if client not in flipped][:MOST_LINES]
    top = max(1.0, float(table[[*flipped, *others]].max().max()))
    yaxis = axis("λ, weight of the consensus", range=[-0.03 * top, 1.06 * top])
    fig = figure(360, yaxis=yaxis, xaxis=round_axis(table.index.max()))
    quiet, loud = {"color": with_opacity(LIGHT["accent"], 0.55), "width": 1.6}, {"color": LIGHT["alarm"], "width": 3.2}
    for client in [*others, *flipped]:
        values, stands_out = table[client].dropna(), client in flipped
        line = loud if stands_out else quiet
        fig.add_scatter(x=values.index.tolist(), y=values.tolist(), mode="lines", line=line)
        fig.data[-1].update(name=f"client {client}: flipped", showlegend=stands_out)
        fig.data[-1].hovertemplate = f"client {client}<br>round %{{x}}: λ = %{{y:.3f}}<extra></extra>"
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


def loss_lines(study: Study) -> go.Figure | None:
    """Private and public loss over rounds, mean over the flipped clients and over the others."""
    tables = {name: by_round(study.traces, f"loss_{name}") for name in ("private", "public")}
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
                line = {"color": colour, "width": 2.2, "dash": "solid" if name == "private" else "dash"}
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


def numbered_names(traces: pd.DataFrame) -> list[str]:
    """The names of traces NAME/NUMBER that have no words of their own; what modules log is drawn as curves."""
    found = traces["name"].str.extract(r"^([^/]+)/\d+$")[0].dropna()
    return sorted({*found} - {*MATRICES, *SHARES, LOCATION, "logged"})


def number_lines(traces: pd.DataFrame, name: str) -> go.Figure:
    """The server's traces NAME/NUMBER over the rounds of the first seed, a line for each number."""
    rows = traces[(traces["seed"] == traces["seed"].min()) & traces["name"].str.fullmatch(rf"{escape(name)}/\d+")]
    number = rows["name"].str.removeprefix(f"{name}/").astype(int)
    table = thin_out(rows.assign(number=number).pivot_table(index="round", columns="number", values="value"))
    fig = figure(300, xaxis=round_axis(table.index.max()), yaxis=axis("", rangemode="tozero"))
    for place, (number, values) in enumerate(table.items()):
        colour = LIGHT[METHOD_COLOURS[place % len(METHOD_COLOURS)]]
        fig.add_scatter(x=table.index.tolist(), y=values.astype(object).where(values.notna(), None).tolist())
        fig.data[-1].update(mode="lines", name=str(number), line={"color": colour, "width": 2})
    fig.update_layout(hovermode="x unified")
    show_legend(fig)
    return fig


def cluster_map(traces: pd.DataFrame) -> go.Figure | None:
    """The cluster of every client over the rounds of the first seed, clients x rounds."""
    rows = traces[(traces["name"] == "cluster") & (traces["seed"] == traces["seed"].min())]
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


def layer_map(traces: pd.DataFrame) -> go.Figure | None:
    """The share of a layer, or of all personal parameters, in the mask: layers x rounds, over clients and seeds."""
    for name in (LOCATION, *SHARES):
        rows = traces[traces["name"].str.startswith(f"{name}/")]
        if len(rows) and rows["round"].nunique() > 1:
            what = "of all personal parameters" if name == LOCATION else SHARES[name]
            layers = [layer.removeprefix(f"{name}/") for layer in rows["name"].unique()]
            table = rows.assign(name=rows["name"].str.removeprefix(f"{name}/")).pivot_table(
                index="round", columns="name", values="value", aggfunc="mean"
            )
            shown = thin_out(table)[layers].T * 100
            fig = figure_of_rows(110 + 24 * len(layers), axis("round", showgrid=False))
            cells = [round_values(row) for row in shown.to_numpy().tolist()]
            fig.add_heatmap(x=shown.columns.tolist(), y=layers, z=cells, colorscale=SCALE, zmin=0)
            fig.data[-1].hovertemplate = f"%{{y}}, round %{{x}}: %{{z:.1f}} % {what}<extra></extra>"
            fig.data[-1].colorbar = PERCENT
            return fig
    return None


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
