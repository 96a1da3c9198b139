"""Traces of Plotly's figures as matplotlib's."""

import plotly.graph_objects as go

from fedbench.report.in_matplotlib import in_matplotlib
from tests.report.test_in_matplotlib import curves


def test_without_colour_methods_have_markers_and_baselines_dashes():
    first, local, quiet = in_matplotlib(curves()).axes[0].lines
    assert (first.get_marker(), local.get_marker(), quiet.get_marker()) == ("o", "None", "None")
    assert (first.get_linestyle(), local.get_linestyle()) == ("-", "--")
    pair = curves().add_scatter(x=[1, 2], y=[4, 4], name="c", line={"color": "#00ff00"}, meta={"method": "c"})
    assert [line.get_marker() for line in in_matplotlib(pair).axes[0].lines] == ["o", "None", "None", "s"]


def test_bars_are_stacked_and_cells_have_their_numbers():
    bars = go.Figure(layout={"yaxis": {"type": "category"}, "showlegend": True})
    for name, seconds in (("train", [1.0, 2.0]), ("eval", [0.5, 0.25])):
        bars.add_bar(y=["a", "b"], x=seconds, orientation="h", name=name, marker_color="#123456")
    boxes = in_matplotlib(bars).axes[0].patches
    assert [(box.get_x(), box.get_width()) for box in boxes] == [(0, 1), (0, 2), (1, 0.5), (2, 0.25)]
    cells = go.Figure(layout={"xaxis": {"type": "category"}, "yaxis": {"type": "category"}})
    scale = [(0, "#ffffff"), (1, "#000000")]
    cells.add_heatmap(
        x=["1", "2"], y=["3"], z=[[0.25, None]], texttemplate="%{z:.1f}", colorscale=scale, zmin=0, zmax=1
    )
    assert [text.get_text() for text in in_matplotlib(cells).axes[0].texts] == ["0.2"]
