"""Curves are drawn by matplotlib with the numbers, names and colours of Plotly's."""

import plotly.graph_objects as go
import pytest
from matplotlib.colors import to_rgba

from fedbench.report.in_matplotlib import curves_of, is_curves


def curves() -> go.Figure:
    """A band and two curves, of which one is quiet."""
    figure = go.Figure()
    figure.add_scatter(x=[1, 2, 2, 1], y=[3, 4, 2, 1], mode="lines", fill="toself", fillcolor="rgba(255, 0, 51, 0.5)")
    figure.add_scatter(
        x=[1, 2], y=[2.0, 3.0], mode="lines", name="a &amp; b", line={"color": "#ff0033", "dash": "dash"}
    )
    figure.add_scatter(x=[2], y=[1.0], mode="lines+markers", name="quiet", showlegend=False)
    return figure.update_layout(
        xaxis={"title": {"text": "round"}, "type": "log"}, yaxis={"title": {"text": "score, %"}}
    )


def test_numbers_names_bands_and_axes_are_plotly_s(tmp_path):
    drawn = curves_of(curves())
    (axes,) = drawn.axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 2], [2, 3]], [[2, 1]]]
    assert axes.lines[0].get_linestyle() == "--"
    (band,) = axes.patches
    assert band.get_facecolor() == pytest.approx((*to_rgba("#ff0033")[:3], 0.5))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a & b"]
    assert (axes.get_xlabel(), axes.get_xscale(), axes.get_ylabel()) == ("round", "log", "score, %")
    drawn.savefig(tmp_path / "drawn.png")


def test_other_figures_are_not_curves():
    assert is_curves(curves())
    assert not is_curves(curves().add_scatter(x=[1], y=[1], mode="markers"))
    assert not is_curves(curves().add_bar(x=[1], y=[1]))
    assert not is_curves(curves().update_xaxes(title=None))
    assert not is_curves(curves().update_xaxes(type="category"))
