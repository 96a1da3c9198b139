"""Heat maps of tables whose methods differ in two options: the paper's numbers and ours."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby

import plotly.graph_objects as go

from fedbench.report.parts import Chart, charts
from fedbench.report.theme import SCALE, axis, figure
from fedbench_papers.tables.reproduction import ComparedNumber

Options = Mapping[str, str]


def heat_maps(numbers: Sequence[ComparedNumber]) -> list[Chart]:
    """Two maps for each cell with two options, published and ours; none for other tables."""
    made = []
    for number, (name, group) in enumerate(groupby(numbers, key=lambda one: one.cell)):
        compared = list(group)
        if (options := two_options([one.method for one in compared])) is not None:
            theirs = {one.method: one.published for one in compared}
            ours = {one.method: one.ours.mean for one in compared if one.ours is not None}
            pairs = (("published", f"{name}: published", theirs), ("ours", f"{name}: ours", ours))
            made += [
                (f"heat-{number}-{kind}", title, heat_map(options, values), "")
                for kind, title, values in pairs
                if values
            ]
    return charts(*made)


def two_options(methods: Sequence[str]) -> dict[str, Options] | None:
    """The options by method, if all methods are one with the same two options, of two or more values each."""
    options = {method: options_in_name(method) for method in methods}
    names = {(method.partition(" ")[0], *values) for method, values in options.items()}
    keys = next(iter(names))[1:] if len(names) == 1 else ()
    if len(keys) != 2 or any(len({values[key] for values in options.values()}) < 2 for key in keys):
        return None
    return options


def options_in_name(method: str) -> Options:
    """`co-pfl grad_score=off pred_score=on` -> `{"grad_score": "off", "pred_score": "on"}`."""
    return dict(pair.split("=", 1) for pair in method.split(" ")[1:])


def heat_map(options: Mapping[str, Options], values: Mapping[str, float]) -> go.Figure:
    """Accuracies in percent over both options, the first one down; combinations without a number are empty."""
    down, across = next(iter(options.values()))
    rows, columns = (in_order(option[key] for option in options.values()) for key in (down, across))
    numbers = {(keys[down], keys[across]): values.get(method) for method, keys in options.items()}
    fig = figure(96 + 54 * len(rows), xaxis=axis(escape(across), showgrid=False, type="category"))
    fig.update_layout(yaxis=axis(escape(down), showgrid=False, type="category", autorange="reversed"))
    cells = [[numbers.get((row, column)) for column in columns] for row in rows]
    fig.add_heatmap(x=columns, y=rows, z=cells, colorscale=SCALE, xgap=3, ygap=3, showscale=False, hoverongaps=False)
    hover_text = f"{escape(down)} %{{y}}, {escape(across)} %{{x}}: %{{z:.2f}} %<extra></extra>"
    fig.data[-1].update(texttemplate="%{z:.1f}", textfont={"size": 15}, hovertemplate=hover_text)
    return fig


def in_order(values: Iterable[str]) -> list[str]:
    """Each value once, ascending if all are numbers."""
    distinct = list(dict.fromkeys(values))
    try:
        return sorted(distinct, key=float)
    except ValueError:
        return distinct
