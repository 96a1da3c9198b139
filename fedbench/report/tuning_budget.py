"""Mean scores that tuning over k points reaches, and their charts: how a comparison depends on its tuning budget.

Source: Dodge et al., "Show your work: improved reporting of experimental results", EMNLP 2019, who draw the k points
with replacement. Here they are drawn without, as a search tries each point once: for points of a random search the
estimate is then unbiased (Tang et al., "Showing your work doesn't always work", ACL 2020), and for a grid it is the
exact mean over all choices of k of its points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from fedbench.report.curves import add_line, is_loud
from fedbench.report.parts import Chart, charts
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, axis, dash_of, figure, hover, label_ends, score_axis


@dataclass(frozen=True)
class BudgetCurve:
    """Expected scores after k = 1, ..., n points, `[n]`: validation of the best, and test of that point, if known."""

    validation: np.ndarray
    test: np.ndarray | None


def tuning_budget(validation: Sequence[float], test: Sequence[float] | None = None, higher: bool = True) -> BudgetCurve:
    """Expected scores of the point that is best on validation, among k of these n points.

    Of equal points the first one counts as the best, as in a study.
    """
    values = np.asarray(validation, dtype=float)
    # Ascending, and of equal ones the first one last.
    order = np.lexsort((-np.arange(len(values)), values if higher else -values))
    chances = chances_of_best(len(values))
    tested = None if test is None else chances @ np.asarray(test, dtype=float)[order]
    return BudgetCurve(chances @ values[order], tested)


def chances_of_best(points: int) -> np.ndarray:
    """The probability that the i-th point from below is the best of k drawn without replacement, `[k, i]`.

    C(i - 1, k - 1) / C(n, k): k/n for the best one, then from point to point (i - k) / (i - 1).
    """
    k, i = np.arange(1, points + 1)[:, None], np.arange(points, 1, -1)
    steps = np.clip(i - k, 0, None) / (i - 1)  # [k, n - 1], from the best point downwards
    chances = np.cumprod(np.hstack([k / points, steps]), axis=1)
    return np.asarray(chances[:, ::-1])


def budget_charts(study: Study) -> list[Chart]:
    """Expected validation score of the best of k points, and the test score of that point; none without tuning."""
    known = budgets(study)
    tested = {label: budget.test for label, budget in known.items() if budget.test is not None}
    return charts(
        (
            "budget",
            "Validation score by tuning budget",
            budget_curves(study, {label: budget.validation for label, budget in known.items()}, "validation"),
            "Mean score of the best of so many candidates, drawn at random from those that finished. Choosing the best "
            "of noisy scores makes it optimistic.",
        ),
        (
            "budget-test",
            "Test score by tuning budget",
            budget_curves(study, tested, "test"),
            "Mean test score, in tuning, of the candidate that is best on validation among so many.",
        ),
    )


def budgets(study: Study) -> dict[str, BudgetCurve]:
    """The expected scores of every method with two finished points or more."""
    curves = {}
    for label in study.plan.labels():
        scored = [entry.scores for entry in study.plan.points(label) if entry.scores.get("val") is not None]
        validation = [scores["val"] or 0.0 for scores in scored]
        test = [value for scores in scored if (value := scores.get("test")) is not None]
        if len(scored) > 1:
            whole = test if len(test) == len(scored) else None
            curves[label] = tuning_budget(validation, whole, study.metric.higher)
    return curves


def budget_curves(study: Study, scores: Mapping[str, np.ndarray], split: str) -> go.Figure | None:
    """Scores over the number of points, one curve per method. scores: after 1, ..., n points."""
    if not scores:
        return None
    metric, shown = study.metric, {label: study.metric.factor * values for label, values in scores.items()}
    most = max(map(len, shown.values()))
    xaxis = axis("candidates", showgrid=False, dtick=1 if most <= 12 else None)
    limits = [float(value) for values in shown.values() for value in (values.min(), values.max())]
    fig = figure(340, xaxis=xaxis, yaxis=score_axis(metric, limits, split))
    fig.update_layout(hovermode="closest")
    colours = {label: study.colours.get(label, LIGHT["quiet"]) for label in shown}
    for label in sorted(shown, key=lambda label: is_loud(colours[label])):
        hover_text = f"{escape(label)}<br>%{{x}} candidates: {hover(metric)}<extra></extra>"
        numbers = range(1, len(shown[label]) + 1)
        dash = dash_of(label, study.plan.references)
        add_line(
            fig, label, numbers, shown[label], colours[label], dash, mode="lines+markers", hovertemplate=hover_text
        )
    label_ends(
        fig,
        [
            (escape(label), float(values[-1]), colours[label])
            for label, values in shown.items()
            if is_loud(colours[label])
        ],
    )
    return fig
