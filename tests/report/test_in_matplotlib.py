"""Figures are drawn by matplotlib with the numbers and colours of Plotly's, for print."""

from pathlib import Path

import plotly.graph_objects as go
import pytest
from matplotlib.colors import to_rgba

from fedbench.errors import ConfigError
from fedbench.report.in_matplotlib import (
    COLUMN,
    in_matplotlib,
    in_panels,
    picture_format,
    save_picture,
)
from fedbench.report.theme import LIGHT
from fedbench.report.typeset import ShownMethods


def curves() -> go.Figure:
    """A band and the curves of three methods, of which one is quiet and one is the baseline."""
    figure = go.Figure()
    figure.add_scatter(x=[1, 2, 2, 1], y=[3, 4, 2, 1], mode="lines", fill="toself", fillcolor="rgba(255, 0, 51, 0.5)")
    figure.add_scatter(x=[1, 2], y=[2.0, 3.0], mode="lines", name="a &amp; b", line={"color": "#ff0033"})
    figure.add_scatter(x=[1, 2], y=[1.0, 1.0], mode="lines", name="local", line={"color": "#000000", "dash": "dash"})
    figure.add_scatter(x=[2], y=[1.0], mode="lines", name="quiet", showlegend=False, line={"color": LIGHT["quiet"]})
    for trace, method in zip(figure.data, ("a & b", "a & b", "local", "quiet"), strict=True):
        trace.meta = {"method": method}
    figure.add_annotation(x=1, y=1, text="a &amp; b", name="end")
    axes = {"xaxis": {"title": {"text": "round"}, "type": "log"}, "yaxis": {"title": {"text": "score of quiet, %"}}}
    return figure.update_layout(showlegend=False, **axes)


def test_numbers_names_bands_and_axes_are_plotly_s():
    made = in_matplotlib(curves())
    (axes,) = made.axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 2], [2, 3]], [[1, 1], [2, 1]], [[2, 1]]]
    (band,) = axes.patches
    assert band.get_facecolor() == pytest.approx((*to_rgba("#ff0033")[:3], 0.5))
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a & b", "local"]
    assert (axes.get_xlabel(), axes.get_xscale(), axes.get_ylabel()) == ("round", "log", "score of quiet, %")
    assert axes.get_title() == ""
    assert not axes.texts  # the legend replaces the names at the ends
    assert made.get_size_inches()[0] == COLUMN


def test_a_step_of_one_is_a_round_or_a_decade():
    for kind, last, ticks in (("linear", 4, [1, 2, 3, 4]), ("log", 1000, [1, 10, 100, 1000])):
        figure = go.Figure().add_scatter(x=[1, last], y=[1.0, 2.0]).update_xaxes(type=kind, dtick=1)
        (axes,) = in_matplotlib(figure).axes
        low, high = axes.get_xlim()
        assert [tick for tick in axes.get_xticks() if low <= tick <= high] == ticks
        assert axes.xaxis.get_major_formatter().format_ticks(ticks)[-1] == str(last)


def test_panels_share_their_upright_axis_and_the_legend_of_the_first():
    made = in_panels([curves(), curves()], width=7.0)
    first, second = made.axes
    assert (first.get_ylabel(), second.get_ylabel()) == ("score of quiet, %", "")
    assert first.get_ylim() == second.get_ylim()
    assert [len(axes.lines) for axes in (first, second)] == [3, 3]
    (legend,) = made.legends
    assert len(legend.get_texts()) == 2


def test_chosen_methods_are_shown_in_their_order_by_their_names():
    shown = ShownMethods(["local", "a & b"], {"a & b": "AB", "quiet": "Q"}, ["a & b", "local", "quiet"])
    made = in_matplotlib(curves(), shown, width=5.0)
    assert len(made.axes[0].lines) == 2
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["local", "AB"]
    assert made.axes[0].get_ylabel() == "score of Q, %"
    assert made.get_size_inches()[0] == 5.0


def rows() -> go.Figure:
    """Two methods on an axis of names, one of which is not significant."""
    figure = go.Figure().add_scatter(x=[1.0, 2.0, None, 3.0, 4.0], y=["a", "a", "a", "b", "b"], mode="lines")
    figure.add_scatter(x=[1.5, 3.5], y=["a", "b"], mode="markers", marker={"color": ["#ff0033", LIGHT["quiet"]]})
    return figure.update_layout(yaxis={"type": "category", "autorange": "reversed"})


def test_rows_have_names_and_grey_marks_where_nothing_was_decided():
    made = in_matplotlib(rows())
    (axes,) = made.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.yaxis_inverted()
    (marks,) = axes.collections
    assert marks.get_facecolors()[:, :3].tolist() == [list(to_rgba("#ff0033")[:3]), list(to_rgba(LIGHT["quiet"])[:3])]
    only = in_matplotlib(rows(), ShownMethods(["b"], {}, ["a", "b"]))
    assert [label.get_text() for label in only.axes[0].get_yticklabels()] == ["b"]
    assert only.get_size_inches()[1] < made.get_size_inches()[1]


def test_files_have_the_format_that_is_asked_for_or_of_their_name(tmp_path):
    assert picture_format(None) == "pdf"
    assert picture_format(Path("a.png")) == "png"
    assert picture_format(Path("a"), "svg") == "svg"
    for file, asked, line in (
        ("a.gif", None, r"a.gif: the end of its name: must be one of pdf, svg, png"),
        ("a", "gif", "format = gif: must be"),
        ("a.png", "svg", "format = svg: a.png ends in png"),
    ):
        with pytest.raises(ConfigError, match=line):
            picture_format(Path(file), asked)
    for kind, begin in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        for name in ("one", "two"):
            save_picture(in_matplotlib(curves()), tmp_path / name, kind)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
        assert (tmp_path / "one").read_bytes().startswith(begin)
