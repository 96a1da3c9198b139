"""How a method depends on its keys: points as lines through all of them, and the share that each key has."""

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from typing import Any

import plotly.graph_objects as go

from fedbench.report.grids import short
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, SCALE, axis, figure
from fedbench.results.plan import Entry, Plan, text_of
from fedbench.tasks import Metric

LEAST_POINTS = 8
"""Finished ones, for shares that say more than chance."""
WIDE = 50
"""Positive values that span such a factor are drawn and judged on a logarithmic scale."""
MOST_TICKS = 7
SEED = 0


def search_charts(study: Study) -> Iterator[tuple[str, str, go.Figure, str]]:
    """Id, title, figure and caption: lines and shares of every method with more than two keys, or a grid's own."""
    for number, label in enumerate(study.plan.spaces):
        points = [entry for entry in study.plan.points(label) if entry.scores.get("val") is not None]
        keys = [key for key, values in study.plan.spaces[label].items() if len(values) > 1]
        if len(points) < 2 or len(keys) < (3 if study.plan.search == "grid" else 2):
            continue
        yield f"lines-{number}", label, lines(study.metric, points, keys), "A line is a point; the best are dark."
        if len(points) >= LEAST_POINTS:
            shares = importance(points, keys)
            caption = f"Shares of the variance of {len(points)} validation scores that a forest explains (fANOVA)."
            yield f"shares-{number}", f"What matters for {label}", bars(shares), caption


def intro(plan: Plan) -> str:
    """How points were found."""
    how = {"grid": "of a grid", "random": "drawn at random", "optuna": "proposed by Optuna from those before them"}
    return f"Points {how[plan.search]}, on validation."


def notes(plan: Plan) -> list[str]:
    """What was stopped early or left out."""
    found = [f"{label} {point} was left out, as no run takes it: {why}" for label, point, why in plan.refused]
    if stopped := plan.stopped():
        tried = sum(entry.role == "candidate" for entry in plan.entries)
        names = ", ".join(f"{entry.label} {entry.name}" for entry in stopped)
        found.append(f"{len(stopped)} of {tried} trials were stopped early and are never chosen: {names}.")
    return found


def lines(metric: Metric, points: Sequence[Entry], keys: Sequence[str]) -> go.Figure:
    """Parallel coordinates: an axis per key, the validation score on the last."""
    scores = [(entry.scores["val"] or 0.0) * metric.factor for entry in points]
    ends = {"label": f"validation {metric.title}", "values": scores}
    fig = figure(360)
    scale = SCALE[1:] if metric.higher else [[1 - place, colour] for place, colour in reversed(SCALE[1:])]
    fig.add_parcoords(
        dimensions=[*(dimension(key, [entry.values[key] for entry in points]) for key in keys), ends],
        line={"color": scores, "colorscale": [[0, scale[0][1]], *scale[1:-1], [1, scale[-1][1]]]},
        labelfont={"color": LIGHT["muted"], "size": 13},
        tickfont={"color": LIGHT["muted"]},
        rangefont={"color": "rgba(0,0,0,0)"},
    )
    fig.update_layout(margin={"l": 70, "r": 70, "t": 56, "b": 24})
    return fig


def dimension(key: str, values: Sequence[Any]) -> dict[str, Any]:
    """An axis with a tick for each value, where they are few."""
    places, names = on_scale(values)
    ticks = dict(sorted(zip(places, names, strict=True)))
    shown = [*ticks][:: max(1, -(-len(ticks) // MOST_TICKS))]
    return {
        "label": escape(short(key)),
        "values": places,
        "tickvals": shown,
        "ticktext": [escape(ticks[place]) for place in shown],
    }


def on_scale(values: Sequence[Any]) -> tuple[list[float], list[str]]:
    """Places on an axis, and what stands there: numbers, their logarithms where they span much, or ranks of words."""
    names = [text_of(value) for value in values]
    if not _are_numbers(values):
        order = list(dict.fromkeys(names))
        return [float(order.index(name)) for name in names], names
    numbers = [float(value) for value in values]
    return [log10(number) for number in numbers] if _is_wide(numbers) else numbers, names


def importance(points: Sequence[Entry], keys: Sequence[str]) -> dict[str, float]:
    """The share that each key has in the variance of the validation score, by Optuna's fANOVA; the largest first."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spaces = {key: _distribution([entry.values[key] for entry in points]) for key in keys}
    study = optuna.create_study()
    for entry in points:
        own = {key: entry.values[key] if _is_number(spaces[key]) else text_of(entry.values[key]) for key in keys}
        study.add_trial(optuna.trial.create_trial(params=own, distributions=spaces, value=entry.scores["val"]))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=SEED)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def bars(shares: dict[str, float]) -> go.Figure:
    """A bar per key, the most important on top."""
    fig = figure(90 + 34 * len(shares), xaxis=axis("share of the variance, %", range=[0, 104]))
    fig.update_layout(yaxis=axis(showgrid=False, type="category", autorange="reversed"))
    x, names = [100 * share for share in shares.values()], [escape(short(key)) for key in shares]
    fig.add_bar(x=x, y=names, orientation="h", marker={"color": LIGHT["accent"]}, width=0.6)
    fig.data[-1].update(
        texttemplate="%{x:.0f}", textposition="outside", hovertemplate="%{y}: %{x:.1f} %<extra></extra>"
    )
    return fig


def _distribution(values: Sequence[Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if not _are_numbers(values):
        return CategoricalDistribution(list(dict.fromkeys(map(text_of, values))))
    return FloatDistribution(min(values), max(values), log=_is_wide(values))


def _is_number(distribution: Any) -> bool:
    return hasattr(distribution, "low")


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _is_wide(numbers: Sequence[float]) -> bool:
    return min(numbers) > 0 and max(numbers) / min(numbers) >= WIDE
