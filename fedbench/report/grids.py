"""Figures of a grid: validation score over the tuned points."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import product
from typing import Any

import plotly.graph_objects as go

from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, SCALE, axis, figure, figure_of_rows, score_axis
from fedbench.results.plan import Entry, is_number, point_name, text_of
from fedbench.tasks import Metric


def varying(study: Study) -> list[str]:
    """Keys of the space with more than one value: rows first, then columns, then panels."""
    return [key for key, values in study.plan.spaces.get(study.method, {}).items() if len(values) > 1]


def grid_panels(study: Study) -> Iterator[tuple[str, go.Figure]]:
    """Title and figure per combination of the third and further keys; a line of dots if only one key varies."""
    keys, candidates, space = varying(study), study.plan.points(), study.plan.spaces.get(study.method, {})
    if not keys or not candidates:
        return
    best = [point_name(study.plan.choices.get(study.method, {"": None})), *study.plan.as_good(study.method)]
    if len(keys) > 1 and study.plan.search != "grid":  # scattered points would leave most of a map empty
        return
    if len(keys) == 1:
        yield "", dots(study.metric, candidates, keys[0], best)
        return
    limits = _limits(study.metric, candidates)
    for values in product(*(ascending(space[key]) for key in keys[2:])):
        fixed = dict(zip(keys[2:], values, strict=True))
        inside = [entry for entry in candidates if all(entry.values[k] == v for k, v in fixed.items())]
        title = ", ".join(f"{short_name(key)} = {text_of(value)}" for key, value in fixed.items())
        yield title, heat_map(study.metric, inside, keys[0], keys[1], space, best, limits)


def ascending(values: Iterable[Any]) -> list[Any]:
    """Numbers ascending, behind all else: values beyond the end of a range were tried after the others."""
    return sorted(values, key=lambda value: (is_number(value), value if is_number(value) else 0))


def short_name(key: str) -> str:
    return key.removeprefix("method.")


def _limits(metric: Metric, candidates: Sequence[Entry]) -> list[float | None]:
    known = [value for entry in candidates if (value := _value(metric, entry)) is not None]
    return [min(known), max(known)] if known else [None, None]


def heat_map(
    metric: Metric,
    candidates: Sequence[Entry],
    rows: str,
    columns: str,
    space: dict[str, list[Any]],
    best: Sequence[str],
    limits: list[float | None],
) -> go.Figure:
    """Validation scores per point as a heat map with values; best and failed points are marked."""
    across, down = ([text_of(value) for value in ascending(space[key])] for key in (columns, rows))
    entries = {(text_of(entry.values[rows]), text_of(entry.values[columns])): entry for entry in candidates}
    z = [[_value(metric, entries.get((row, column))) for column in across] for row in down]
    fig = figure_of_rows(96 + 54 * len(down), axis(escape(short_name(columns)), showgrid=False, type="category"))
    fig.update_yaxes(title_text=escape(short_name(rows)))
    scale = SCALE if metric.higher else [(1 - at, colour) for at, colour in reversed(SCALE)]
    fig.add_heatmap(x=across, y=down, z=z, colorscale=scale, zmin=limits[0], zmax=limits[1], xgap=3, ygap=3)
    form = "%{z:.1f}" if metric.share else "%{z:.3g}"
    fig.data[-1].update(texttemplate=form, textfont={"size": 15}, showscale=False, hoverongaps=False)
    fig.data[-1].update(customdata=[[_test(metric, entries.get((r, c))) for c in across] for r in down])
    names = f"{escape(short_name(rows))} = %{{y}}, {escape(short_name(columns))} = %{{x}}"
    fig.data[-1].hovertemplate = names + f"<br>validation {form}{metric.unit}, test %{{customdata}}<extra></extra>"
    for (row, column), entry in entries.items():
        _mark(metric, fig, entry, down.index(row), across.index(column), best)
    return fig


def _value(metric: Metric, entry: Entry | None) -> float | None:
    """The validation score as shown."""
    value = None if entry is None or entry.status != "done" else entry.scores.get("val")
    return None if value is None else value * metric.factor


def _test(metric: Metric, entry: Entry | None) -> str:
    value = None if entry is None else entry.scores.get("test")
    return "unknown" if value is None else metric.with_unit(value)


def _mark(metric: Metric, fig: go.Figure, entry: Entry, row: int, column: int, best: Sequence[str]) -> None:
    """A frame around the best point, a dotted one around those that are as good, a word for one without a number."""
    box = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5, "type": "rect"}
    if entry.name in best:
        fig.add_shape(
            **box, line={"color": LIGHT["c1"], "width": 4, "dash": "solid" if entry.name == best[0] else "dot"}
        )
    elif _value(metric, entry) is None:
        tone = LIGHT["alarm"] if entry.status == "failed" else LIGHT["muted"]
        fig.add_shape(**box, line={"color": LIGHT["quiet"], "width": 1, "dash": "dot"})
        text = {"text": entry.status, "font": {"color": tone, "size": 13}, "showarrow": False}
        fig.add_annotation(x=column, y=row, **text)


def dots(metric: Metric, candidates: Sequence[Entry], key: str, best: Sequence[str]) -> go.Figure:
    """Validation scores over the values of a single key; the best is named, failed ones are on the axis."""
    places = ascending([entry.values[key] for entry in candidates])
    candidates = sorted(candidates, key=lambda entry: places.index(entry.values[key]))
    done = [entry for entry in candidates if _value(metric, entry) is not None]
    values = [value for entry in done if (value := _value(metric, entry)) is not None]
    xaxis = axis(escape(short_name(key)), showgrid=False, type="category", categoryorder="array")
    fig = figure(300, xaxis=xaxis, yaxis=score_axis(metric, values or [0, 100], "validation"))
    fig.update_layout(xaxis_categoryarray=[text_of(entry.values[key]) for entry in candidates], margin_t=28)
    form = "%{y:.1f}" if metric.share else "%{y:.3g}"
    names = [text_of(entry.values[key]) for entry in done]
    fig.add_scatter(x=names, y=values, mode="lines+markers+text", texttemplate=form)
    fig.data[-1].update(line={"color": LIGHT["quiet"], "width": 1.5}, textposition="top center")
    colours = [LIGHT["c1" if entry.name in best else "accent"] for entry in done]
    hover_text = f"%{{x}}: {form}{metric.unit}<extra></extra>"
    fig.data[-1].update(marker={"color": colours, "size": 11}, hovertemplate=hover_text)
    bottom = fig.layout.yaxis.range[0]
    for position, entry in enumerate(candidates):
        if entry.status != "done":
            text = {"text": entry.status, "font": {"color": LIGHT["alarm"]}, "showarrow": False, "yanchor": "bottom"}
            fig.add_annotation(x=position, y=bottom, **text)
    fig.update_xaxes(range=[-0.5, len(candidates) - 0.5])
    return fig
