"""Figures of method traces: lambda, losses, masks, overlap, collaborators. Read from traces.parquet."""

import pandas as pd
import plotly.graph_objects as go

from fedbench.report.curves import round_values, thin_out
from fedbench.report.study import Study
from fedbench.report.theme import (
    LIGHT,
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
DRAWN = (
    "lambda",
    "loss_private",
    "loss_public",
    *SHARES,
    "mask_agreement",
    "agreement",
    "consensus_accuracy",
    "collaborators",
    "threshold",
    "margin",
    "changed",
)
"""Traces with their own figure, or that belong to another trace's figure."""
LOCATION = "personal_location"
"""Traces named personal_location/LAYER: the share of all personal parameters that are in a layer."""
PAIRS = ("weight", "head_weight")
"""Traces named NAME/CLIENT: how much a client takes from another one."""


def by_round(traces: pd.DataFrame, name: str) -> pd.DataFrame:
    """A trace as rounds x clients, mean over seeds."""
    rows = traces[(traces["name"] == name) & (traces["client"] >= 0)]
    return thin_out(rows.pivot_table(index="round", columns="client", values="value", aggfunc="mean"))


def lambda_lines(study: Study) -> go.Figure | None:
    """Lambda over rounds, one line per client; clients with permuted labels are highlighted and named."""
    table = by_round(study.traces, "lambda")
    if table.empty:
        return None
    clients = [int(client) for client in table.columns]
    flipped = [client for client in study.flipped_clients if client in clients]
    others = [client for client in clients if client not in flipped][:MOST_LINES]
    top = max(1.0, float(table[[*flipped, *others]].max().max()))
    yaxis = axis("λ, weight of the consensus", range=[-0.03 * top, 1.06 * top])
    fig = figure(360, yaxis=yaxis, xaxis=round_axis(table.index.max()))
    for client in [*others, *flipped]:
        _line(fig, table[client].dropna(), client, client in flipped)
    if flipped and others:
        fig.data[0].update(name=_name_of_others(flipped, others), showlegend=True)
    label_ends(fig, _lambda_names(table, flipped, others))
    return fig


def _line(fig: go.Figure, values: pd.Series, client: int, stands_out: bool) -> None:
    colour, width = (LIGHT["alarm"], 3.2) if stands_out else (with_opacity(LIGHT["accent"], 0.55), 1.6)
    fig.add_scatter(x=values.index.tolist(), y=values.tolist(), mode="lines", line={"color": colour, "width": width})
    fig.data[-1].update(name=f"client {client}: flipped", showlegend=stands_out)
    fig.data[-1].hovertemplate = f"client {client}<br>round %{{x}}: λ = %{{y:.3f}}<extra></extra>"


def _lambda_names(table: pd.DataFrame, flipped: list[int], others: list[int]) -> list[tuple[str, float, str]]:
    """Names for the flipped clients and, once, for the rest; without flipped clients, for all of a few."""
    last = table.ffill().iloc[-1]
    names = [(f"client {c}: flipped", float(last[c]), LIGHT["alarm"]) for c in flipped]
    if not others:
        return names
    if flipped or len(others) > 12:
        return [*names, (_name_of_others(flipped, others), float(last[others].median()), LIGHT["accent"])]
    return [(f"client {c}", float(last[c]), LIGHT["accent"]) for c in others]


def _name_of_others(flipped: list[int], others: list[int]) -> str:
    count = f"{len(others)} client{'s' if len(others) > 1 else ''}"
    return f"other {count}" if flipped else f"all {count}"


def loss_lines(study: Study) -> go.Figure | None:
    """Private and public loss over rounds, mean over the flipped clients and over the others."""
    tables = {name: by_round(study.traces, f"loss_{name}") for name in ("private", "public")}
    if any(table.empty for table in tables.values()):
        return None
    last = max(table.index.max() for table in tables.values())
    fig = figure(360, 16, xaxis=round_axis(last), yaxis=axis("loss", rangemode="tozero"))
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


def share_lines(study: Study, name: str, title: str) -> go.Figure | None:
    """A share over rounds in %: the mean over clients, with the band from lowest to highest client."""
    return _mean_with_band(_clients_or_server(study.traces, name) * 100, title, " %")


def count_lines(study: Study, name: str, title: str) -> go.Figure | None:
    """A count over rounds: the mean over clients, with the band from lowest to highest client."""
    return _mean_with_band(by_round(study.traces, name), title, "")


def _mean_with_band(table: pd.DataFrame, title: str, unit: str) -> go.Figure | None:
    if table.empty:
        return None
    fig = figure(300, 16, xaxis=round_axis(table.index.max()), yaxis=axis(title, rangemode="tozero"))
    rounds, low, high = table.index.tolist(), table.min(axis=1).tolist(), table.max(axis=1).tolist()
    fig.add_scatter(
        x=rounds + rounds[::-1], y=high + low[::-1], fill="toself", fillcolor=with_opacity(LIGHT["accent"], 0.14)
    )
    fig.data[-1].update(mode="lines", line={"width": 0}, hoverinfo="skip")
    fig.add_scatter(
        x=rounds, y=table.mean(axis=1).tolist(), mode="lines", line={"color": LIGHT["accent"], "width": 2.4}
    )
    fig.data[-1].hovertemplate = f"round %{{x}}: %{{y:.3g}}{unit}<extra></extra>"
    return fig


def layer_bars(study: Study, name: str, title: str) -> go.Figure | None:
    """The share in each layer in the last round, in %: mean over clients and seeds, in layer order."""
    rows = study.traces[study.traces["name"].str.startswith(f"{name}/")]
    if rows.empty:
        return None
    rows = rows[rows["round"] == rows["round"].max()]
    shares = rows.groupby("name", sort=False)["value"].mean() * 100
    names = [layer.removeprefix(f"{name}/") for layer in shares.index]
    fig = figure_of_rows(90 + 24 * len(names), axis(title, rangemode="tozero"), right=48, bargap=0.4)
    fig.add_bar(y=names, x=shares.tolist(), orientation="h", marker_color=LIGHT["accent"], texttemplate="%{x:.1f}")
    fig.data[-1].update(textposition="outside", cliponaxis=False, hovertemplate="%{y}: %{x:.2f} %<extra></extra>")
    return fig


def layer_map(study: Study) -> go.Figure | None:
    """The share of a layer, or of all personal parameters, in the mask: layers x rounds, over clients and seeds."""
    for name in (LOCATION, *SHARES):
        rows = study.traces[study.traces["name"].str.startswith(f"{name}/")]
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
            fig.data[-1].colorbar = {"title": {"text": "%"}, "thickness": 10, "outlinewidth": 0}
            return fig
    return None


def head_sensitivity(study: Study) -> go.Figure | None:
    """The sensitivity of each class's classifier row, in % of the client's most sensitive: clients x classes."""
    table = _by_other(study, "head_sensitivity")
    return None if table.empty else _matrix(table.div(table.max(axis=1), axis=0) * 100, "class")


def overlap_matrix(study: Study) -> go.Figure | None:
    """The overlap of two clients' masks in the last round of the first seed, clients x clients."""
    table = _by_other(study, "overlap")
    return None if table.empty else _matrix(table * 100, "other client")


def weight_matrix(study: Study) -> go.Figure | None:
    """How much a client's model takes from each other in the last round of the first seed, clients x clients."""
    for name in PAIRS:
        table = _by_other(study, name)
        if not table.empty:
            return _matrix(table * 100, "takes from client")
    return None


def mixture_matrix(study: Study) -> go.Figure | None:
    """Each client's point in the simplex of endpoints in the last round of the first seed, clients x endpoints."""
    table = _by_other(study, "mixture")
    return None if table.empty else _matrix(table * 100, "endpoint")


def other_lines(study: Study) -> list[tuple[str, go.Figure | None]]:
    """Every other trace over rounds by name: the mean over clients and its band, or the server's value."""
    names = [n for n in study.traces["name"].unique() if n not in DRAWN and ("/" not in n or n.startswith("logged/"))]
    return [
        (name.removeprefix("logged/"), _mean_with_band(_clients_or_server(study.traces, name), "", ""))
        for name in sorted(names)
    ]


def _clients_or_server(traces: pd.DataFrame, name: str) -> pd.DataFrame:
    table = by_round(traces, name)
    if not table.empty:
        return table
    rows = traces[traces["name"] == name]
    return rows.pivot_table(index="round", columns="client", values="value", aggfunc="mean")


def _by_other(study: Study, name: str) -> pd.DataFrame:
    """Traces NAME/NUMBER of the last round of the first seed, clients x numbers."""
    rows = study.traces[study.traces["name"].str.startswith(f"{name}/") & (study.traces["client"] >= 0)]
    rows = rows[rows["seed"] == rows["seed"].min()]
    rows = rows[rows["round"] == rows["round"].max()]
    other = rows["name"].str.removeprefix(f"{name}/").astype(int)
    return rows.assign(other=other).pivot_table(index="client", columns="other", values="value")


def _matrix(table: pd.DataFrame, across: str) -> go.Figure:
    names = [[str(c) for c in table.columns], [str(c) for c in table.index]]
    cells = [[None if pd.isna(v) else v for v in row] for row in table.to_numpy().tolist()]
    side = min(560, 110 + 30 * len(cells))
    fig = figure(side, 16, xaxis=axis(across, showgrid=False, type="category"))
    fig.update_layout(yaxis=axis("client", showgrid=False, autorange="reversed", type="category"))
    text = "%{z:.0f}" if len(cells) <= MOST_CELLS else None
    fig.add_heatmap(x=names[0], y=names[1], z=cells, colorscale=SCALE, texttemplate=text, xgap=1, ygap=1)
    fig.data[-1].update(hovertemplate=f"client %{{y}}, {across} %{{x}}: %{{z:.1f}} %<extra></extra>", hoverongaps=False)
    fig.data[-1].colorbar = {"title": {"text": "%"}, "thickness": 10, "outlinewidth": 0}
    fig.data[-1].showscale = text is None
    return fig
