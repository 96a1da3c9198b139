"""Pictures of a grid: validation accuracy over the tried points."""

from collections.abc import Iterator
from html import escape
from itertools import product
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, SCALE, axis, figure, percent_axis

SHOWN = 100  # percent


def varying(study: Study) -> list[str]:
    """The keys of the space with more than one tried value: rows first, then columns, then panels."""
    assert study.grid
    return [key for key, values in study.grid.space().items() if len(values) > 1]


def grid_panels(study: Study) -> Iterator[tuple[str, go.Figure]]:
    """Title and figure per combination of the third and further keys; a line of dots when a single key varies."""
    assert study.grid
    keys, cells = varying(study), study.grid.cells()
    if not keys or cells.empty:
        return
    if len(keys) == 1:
        yield "", dots(cells, keys[0], str(study.grid.grid().get("best")))
        return
    space = study.grid.space()
    limits = _limits(cells)
    for values in product(*(space[key] for key in keys[2:])):
        fixed = dict(zip(keys[2:], values, strict=True))
        inside = cells[[all(row[k] == v for k, v in fixed.items()) for _, row in cells.iterrows()]]
        title = ", ".join(f"{short(key)} = {value}" for key, value in fixed.items())
        yield title, heat_map(inside, keys[0], keys[1], space, str(study.grid.grid().get("best")), limits)


def short(key: str) -> str:
    return key.removeprefix("method.")


def _limits(cells: pd.DataFrame) -> list[float | None]:
    known = pd.to_numeric(cells["val_accuracy"]).dropna() * SHOWN
    return [float(known.min()), float(known.max())] if len(known) else [None, None]


def heat_map(
    cells: pd.DataFrame, rows: str, columns: str, space: dict[str, list[Any]], best: str, limits: list[float | None]
) -> go.Figure:
    """Validation accuracy in % per cell with its value written in; the best is framed, failed ones say so."""
    across, down = [str(v) for v in space[columns]], [str(v) for v in space[rows]]
    found = {(str(cell[rows]), str(cell[columns])): cell for _, cell in cells.iterrows()}
    z = [[_value(found.get((row, column))) for column in across] for row in down]
    fig = figure(96 + 54 * len(down), 16, xaxis=axis(escape(short(columns)), showgrid=False, type="category"))
    fig.update_layout(yaxis=axis(escape(short(rows)), showgrid=False, type="category", autorange="reversed"))
    fig.add_heatmap(x=across, y=down, z=z, colorscale=SCALE, zmin=limits[0], zmax=limits[1], xgap=3, ygap=3)
    fig.data[-1].update(texttemplate="%{z:.1f}", textfont={"size": 15}, showscale=False, hoverongaps=False)
    fig.data[-1].update(customdata=[[_test(found.get((r, c))) for c in across] for r in down])
    names = f"{escape(short(rows))} = %{{y}}, {escape(short(columns))} = %{{x}}"
    fig.data[-1].hovertemplate = names + "<br>validation %{z:.2f} %, test %{customdata}<extra></extra>"
    for (row, column), cell in found.items():
        _mark(fig, cell, down.index(row), across.index(column), best)
    return fig


def _value(cell: pd.Series | None) -> float | None:
    if cell is None or cell["status"] != "done" or pd.isna(cell["val_accuracy"]):
        return None
    return float(cell["val_accuracy"]) * SHOWN


def _test(cell: pd.Series | None) -> str:
    value = None if cell is None else cell["test_accuracy"]
    return "unknown" if pd.isna(value) else f"{value * SHOWN:.2f} %"


def _mark(fig: go.Figure, cell: pd.Series, row: int, column: int, best: str) -> None:
    """A frame around the best cell, a word in a cell without a number."""
    box = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5, "type": "rect"}
    if cell["name"] == best:
        fig.add_shape(**box, line={"color": LIGHT["c1"], "width": 4})
    elif _value(cell) is None:
        tone = LIGHT["alarm"] if cell["status"] == "failed" else LIGHT["muted"]
        fig.add_shape(**box, line={"color": LIGHT["quiet"], "width": 1, "dash": "dot"})
        text = {"text": str(cell["status"]), "font": {"color": tone, "size": 13}, "showarrow": False}
        fig.add_annotation(x=column, y=row, **text)


def dots(cells: pd.DataFrame, key: str, best: str) -> go.Figure:
    """Validation accuracy over the values of a single key; the best is named, failed ones stand on the axis."""
    done = cells[cells["status"] == "done"].dropna(subset=["val_accuracy"])
    values = (done["val_accuracy"] * SHOWN).tolist()
    xaxis = axis(escape(short(key)), showgrid=False, type="category", categoryorder="array")
    fig = figure(300, xaxis=xaxis, yaxis=percent_axis(values or [0, 100], "validation accuracy, %"))
    fig.update_layout(xaxis_categoryarray=[str(v) for v in cells[key]], margin_t=28)
    fig.add_scatter(x=[str(v) for v in done[key]], y=values, mode="lines+markers+text", texttemplate="%{y:.1f}")
    fig.data[-1].update(line={"color": LIGHT["quiet"], "width": 1.5}, textposition="top center")
    colours = [LIGHT["c1"] if name == best else LIGHT["accent"] for name in done["name"]]
    fig.data[-1].update(marker={"color": colours, "size": 11}, hovertemplate="%{x}: %{y:.2f} %<extra></extra>")
    bottom = fig.layout.yaxis.range[0]
    for place, status in enumerate(cells["status"]):
        if status != "done":
            text = {"text": str(status), "font": {"color": LIGHT["alarm"]}, "showarrow": False, "yanchor": "bottom"}
            fig.add_annotation(x=place, y=bottom, **text)
    fig.update_xaxes(range=[-0.5, len(cells) - 0.5])
    return fig
