"""Charts of the score against the number of tuned points."""

from collections.abc import Mapping
from html import escape

import numpy as np
import plotly.graph_objects as go

from fedbench.report.curves import add_line, is_loud
from fedbench.report.parts import Chart, charts
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, axis, figure, hover, label_ends, score_axis
from fedbench.results.tuning_budget import BudgetCurve, tuning_budget


def budget_charts(study: Study) -> list[Chart]:
    """Expected validation score of the best of k points, and the test score of that point; none without tuning."""
    known = budgets(study)
    tested = {label: budget.test for label, budget in known.items() if budget.test is not None}
    return charts(
        (
            "budget",
            "Validation score by tuning budget",
            budget_curves(study, {label: budget.validation for label, budget in known.items()}, "validation"),
            "Mean score of the best of so many points, drawn at random from those that finished. Choosing the best of "
            "noisy scores makes it optimistic.",
        ),
        (
            "budget-test",
            "Test score by tuning budget",
            budget_curves(study, tested, "test"),
            "Mean test score, in tuning, of the point that is best on validation among so many.",
        ),
    )


def budgets(study: Study) -> dict[str, BudgetCurve]:
    """The expected scores of every method with two finished points or more."""
    found = {}
    for label in study.plan.labels():
        scored = [entry.scores for entry in study.plan.points(label) if entry.scores.get("val") is not None]
        validation = [scores["val"] or 0.0 for scores in scored]
        test = [value for scores in scored if (value := scores.get("test")) is not None]
        if len(scored) > 1:
            whole = test if len(test) == len(scored) else None
            found[label] = tuning_budget(validation, whole, study.metric.higher)
    return found


def budget_curves(study: Study, scores: Mapping[str, np.ndarray], split: str) -> go.Figure | None:
    """Scores over the number of points, one curve per method. scores: after 1, ..., n points."""
    if not scores:
        return None
    metric, shown = study.metric, {label: study.metric.factor * own for label, own in scores.items()}
    most = max(map(len, shown.values()))
    xaxis = axis("tuned points", showgrid=False, dtick=1 if most <= 12 else None)
    limits = [float(value) for own in shown.values() for value in (own.min(), own.max())]
    fig = figure(340, xaxis=xaxis, yaxis=score_axis(metric, limits, split))
    fig.update_layout(hovermode="closest")
    colours = {label: study.colours.get(label, LIGHT["quiet"]) for label in shown}
    for label in sorted(shown, key=lambda label: is_loud(colours[label])):
        told = f"{escape(label)}<br>%{{x}} points: {hover(metric)}<extra></extra>"
        numbers = range(1, len(shown[label]) + 1)
        add_line(fig, label, numbers, shown[label], colours[label], mode="lines+markers", hovertemplate=told)
    label_ends(
        fig,
        [(escape(label), float(own[-1]), colours[label]) for label, own in shown.items() if is_loud(colours[label])],
    )
    return fig
