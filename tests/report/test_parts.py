"""What a chart shows is said in words, too."""

import plotly.graph_objects as go

from fedbench.report.parts import charts
from tests.report.reading import Make, page_of


def test_a_chart_says_its_axes_and_where_its_curves_end() -> None:
    fig = go.Figure(layout={"height": 300, "xaxis": {"title": "round"}, "yaxis": {"title": "accuracy, %"}})
    fig.add_scatter(x=[1, 2], y=[3.0, 81.26], mode="lines", name="fedper<br>a")
    fig.add_scatter(x=[1, 2], y=[3.0, 70.0], mode="lines", name="quiet", showlegend=False)
    (chart,) = charts(("id", "title", fig, ""), ("none", "", None, ""))
    assert chart.words == "accuracy, % by round; at the end fedper a 81.26"
    assert chart.height == 300


def test_a_chart_of_places_says_what_its_table_holds() -> None:
    fig = go.Figure(layout={"height": 300, "meta": {"table": {"heads": ["tau", "score"], "rows": [["0.1", "90"]]}}})
    fig.add_scatter(x=[0, 1], y=[0.0, 1.0], mode="lines", name="tau=0.1")
    (chart,) = charts(("id", "title", fig, ""))
    assert chart.words == "1 row of tau, score"


def test_every_chart_of_a_page_has_its_words_and_its_values_beside_it(make_comparison: Make) -> None:
    page = page_of(make_comparison({"local": 0.7, "fedcac": 0.8}, seeds=(0, 1)))
    assert page.charts
    assert page.source.count('role="img" aria-label="') == len(page.charts)
    assert page.source.count("<summary>Values") == len(page.charts)
    assert page.source.count("<table") - page.source.count("<caption") == 0
