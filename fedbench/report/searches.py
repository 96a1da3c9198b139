"""Figures of a search: points as lines through all keys, and the importance of each key."""

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from typing import Any

import plotly.graph_objects as go

from fedbench.installation import install, missing
from fedbench.report.grids import short_name
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT, axis, figure, figure_of_rows
from fedbench.results.plan import Entry, Plan, is_number, point_name, text_of
from fedbench.silence import silence_logger
from fedbench.tasks import Metric

LEAST_POINTS = 8
"""Minimum number of finished points for meaningful shares."""
WIDE = 50
"""Positive values that span more than this factor use a logarithmic scale."""
TICK_ROOM = 0.09
"""Minimum distance of two labels, as a share of the axis height."""
SEED = 0
RATES = ("train.lr", "train.lr_scale")


def search_charts(study: Study) -> Iterator[tuple[str, str, go.Figure, str]]:
    """Id, title, figure and caption: lines and importance for every method with more than two keys, or for a search."""
    for number, label in enumerate(study.plan.spaces):
        points = [entry for entry in study.plan.points(label) if entry.scores.get("val") is not None]
        keys = [key for key, values in study.plan.spaces[label].items() if len(values) > 1]
        if len(points) < 2 or len(keys) < (3 if study.plan.search == "grid" else 2):
            continue
        chosen = point_name(study.plan.choices.get(label, {"": None}))
        legend = "Each line is a candidate; orange: the chosen one, blue: the best third."
        if len(points) >= LEAST_POINTS and missing("tune"):
            legend += f" The importance of each key needs Optuna: {install('tune')}."
        yield f"lines-{number}", label, parallel_coordinates(study.metric, points, keys, chosen), legend
        if len(points) >= LEAST_POINTS and not missing("tune"):
            shares = importance(points, keys)
            caption = f"Shares of the variance of {len(points)} validation scores that a forest explains (fANOVA)."
            yield f"shares-{number}", f"Importance of keys for {label}", bars(shares), caption


def intro(plan: Plan) -> str:
    """How points were chosen."""
    how = {"grid": "of a grid", "random": "drawn at random", "optuna": "proposed by Optuna from earlier results"}
    return f"Candidates {how[plan.search]}, on validation."


def rates_note(plan: Plan) -> list[str]:
    """Which learning rate every tuned method has, among which it was chosen, and whether its neighbours were worse."""
    texts = []
    for label, point in plan.choices.items():
        for key in (key for key in RATES if key in point and len(plan.spaces.get(label, {}).get(key, ())) > 1):
            rates = plan.spaces[label][key]
            beside = (
                "" if plan.search != "grid" or key in plan.open_keys(label) else ", the neighbours tried and no better"
            )
            texts.append(f"{label} {key} {point[key]:g} of {min(rates):g} to {max(rates):g}{beside}")
    return [f"Learning rates chosen: {'; '.join(texts)}."] if texts else []


def search_notes(plan: Plan) -> list[str]:
    """The rates of all methods, trials stopped early, points left out, and trials repeated with more of a GPU."""
    lines = rates_note(plan)
    lines += [f"Left out as invalid: {line}." for line in plan.left_out()]
    return [*lines, *filter(None, [plan.saved_note()]), *plan.gpu_notes()]


def parallel_coordinates(metric: Metric, points: Sequence[Entry], keys: Sequence[str], chosen: str) -> go.Figure:
    """Parallel coordinates: one axis per key, the validation score last; plain lines, which need no WebGL."""
    scores = [(entry.scores["val"] or 0.0) * metric.factor for entry in points]
    marks = [f"{score:.1f}" if metric.share else f"{score:.3g}" for score in scores]
    axes = [on_scale([entry.values[key] for entry in points]) for key in keys] + [(scores, marks)]
    heights = [_between_0_and_1(places) for places, _ in axes]
    names = [*(escape(short_name(key)) for key in keys), "validation"]
    fig = figure(360, xaxis=axis(tickvals=list(range(len(names))), ticktext=names, side="top", showgrid=True))
    fig.update_xaxes(range=[-0.25, len(names) - 0.75])
    fig.update_layout(yaxis=axis(visible=False, range=[-0.05, 1.05]), margin={"l": 16, "r": 16, "t": 44, "b": 16})
    rows = [list(row) for row in zip(*(words for _, words in axes), strict=True)]
    fig.update_layout(meta={"table": {"heads": names, "rows": rows}})
    best = sorted(points, key=lambda entry: (entry.scores["val"] or 0.0) * (-1 if metric.higher else 1))
    third = [entry.name for entry in best[: max(1, len(best) // 3)]]
    for i in sorted(range(len(points)), key=lambda i: (points[i].name == chosen, points[i].name in third)):
        name, ours = points[i].name, points[i].name == chosen
        tone = LIGHT["c1" if ours else "accent" if name in third else "quiet"]
        fig.add_scatter(x=list(range(len(names))), y=[height[i] for height in heights], mode="lines", name=name)
        hover_text = f"{escape(name)}: {escape(marks[i])}{metric.unit}<extra></extra>"
        fig.data[-1].update(line={"color": tone, "width": 3 if ours else 1.5}, hovertemplate=hover_text)
    for position, (height, (_, words)) in enumerate(zip(heights, axes, strict=True)):
        for y, word in ticks(height, words):
            note = {"text": escape(word), "showarrow": False, "xanchor": "left", "xshift": 4, "font": {"size": 12}}
            fig.add_annotation(x=position, y=y, bgcolor=LIGHT["ground"], opacity=0.85, **note)
    return fig


def ticks(heights: Sequence[float], words: Sequence[str]) -> list[tuple[float, str]]:
    """Labels of an axis: the lowest and the highest, and as many in between as fit."""
    known = sorted(dict(zip(heights, words, strict=True)).items())
    kept = known[:1]
    for height, word in known[1:-1]:
        if height - kept[-1][0] >= TICK_ROOM and known[-1][0] - height >= TICK_ROOM:
            kept.append((height, word))
    return kept + known[1:][-1:]


def _between_0_and_1(places: Sequence[float]) -> list[float]:
    low, high = min(places), max(places)
    return [(position - low) / (high - low) if high > low else 0.5 for position in places]


def on_scale(values: Sequence[Any]) -> tuple[list[float], list[str]]:
    """Positions on an axis and their labels: numbers, logarithms for wide ranges, or ranks of words."""
    names = [text_of(value) for value in values]
    if not all(map(is_number, values)):
        order = list(dict.fromkeys(names))
        return [float(order.index(name)) for name in names], names
    numbers = [float(value) for value in values]
    return [log10(number) for number in numbers] if _is_wide(numbers) else numbers, names


def importance(points: Sequence[Entry], keys: Sequence[str]) -> dict[str, float]:
    """Each key's share of the variance of the validation score, by Optuna's fANOVA; the largest first."""
    import optuna

    spaces = {key: _distribution([entry.values[key] for entry in points]) for key in keys}
    with silence_logger("optuna"):
        study = optuna.create_study()
    for entry in points:
        params = {key: entry.values[key] if _has_bounds(spaces[key]) else text_of(entry.values[key]) for key in keys}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=entry.scores["val"]))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=SEED)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def bars(shares: dict[str, float]) -> go.Figure:
    """One bar per key, the most important on top."""
    fig = figure_of_rows(90 + 34 * len(shares), axis("share of the variance, %", range=[0, 104]))
    x, names = [100 * share for share in shares.values()], [escape(short_name(key)) for key in shares]
    fig.add_bar(x=x, y=names, orientation="h", marker={"color": LIGHT["accent"]}, width=0.6)
    fig.data[-1].update(
        texttemplate="%{x:.0f}", textposition="outside", hovertemplate="%{y}: %{x:.1f} %<extra></extra>"
    )
    return fig


def _distribution(values: Sequence[Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if not all(map(is_number, values)):
        return CategoricalDistribution(list(dict.fromkeys(map(text_of, values))))
    return FloatDistribution(min(values), max(values), log=_is_wide(values))


def _has_bounds(distribution: Any) -> bool:
    return hasattr(distribution, "low")


def _is_wide(numbers: Sequence[float]) -> bool:
    return min(numbers) > 0 and max(numbers) / min(numbers) >= WIDE
