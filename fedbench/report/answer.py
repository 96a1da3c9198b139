"""The texts of a report: the setting, the answer in one sentence, and key numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from fedbench.config.counts import newcomer_count
from fedbench.config.words import plural
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import join_words, sentence
from fedbench.results.estimators import SAMPLES
from fedbench.results.plan import Plan, point_name
from fedbench.results.quantities import seed_range, size
from fedbench.results.statistics import LEAST_SEEDS, Interval
from fedbench.results.tables import BASELINE, LAST
from fedbench.results.unscored import worst_label
from fedbench.tasks import Metric

ENOUGH_SEEDS = 5
"""From this number on, reports omit the remark on intervals over few seeds."""


@dataclass(frozen=True)
class Tile:
    """One tile in the row of key numbers."""

    value: str
    name: str
    note: str = ""


def possible(metric: Metric, value: float) -> str:
    """The end of an interval, clipped to the range of a share."""
    return metric.with_unit(min(1.0, max(0.0, value)) if metric.share else value)


def points(metric: Metric) -> str:
    """The unit of a difference."""
    return " points" if metric.share else ""


def settings(values: dict[str, Any]) -> str:
    """`{"tau": 0.3, "beta": 5}` -> `tau = 0.3 and beta = 5`."""
    parts = [f"{key.removeprefix('method.')} = {'none' if value is None else value}" for key, value in values.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def span(found: Interval | dict[str, Any], form: Any) -> str:
    """`95 % interval a to b`, or why there is none."""
    low, high = (found.low, found.high) if isinstance(found, Interval) else (found["low"], found["high"])
    return f"95\u00a0% interval {form(low)} to {form(high)}" if low is not None else "one seed, so no interval"


def subtitle(study: Study) -> str:
    """The line under the title: partition, model, rounds, seeds, and the space of a grid."""
    config = study.config
    parts = [partition_words(config, study.records.environment() if study.records else {})]
    parts += [f"model {_name(config, 'model')}"] if _name(config, "model") else []
    parts += [plural(config["rounds"], "round")] if config.get("rounds") else []
    seeds = study.plan.config.get("seeds") or config.get("seeds") or []
    if study.race is not None:
        seeds = sorted({*seeds, *(entry.seed for entry in study.plan.entries if entry.role == "final")})
    parts += [seed_range(seeds)] if seeds else []
    if tried := study.plan.points():
        space = " × ".join(key.removeprefix("method.") for key in study.plan.spaces[study.method])
        where = f"chosen on validation {study.metric.label} {POINT_NAMES[study.point]}{seeds_remark(study)}"
        parts.append(f"{plural(len(tried), 'candidate')} of {space}, {where}")
    parts += [study.remark] if len(set(study.estimators.values())) == 1 else []
    return "; ".join(part for part in parts if part)


def _name(config: dict[str, Any], section: str) -> str:
    value = config.get(section)
    return str(value.get("name", "")) if isinstance(value, dict) else str(value or "")


def partition_words(config: dict[str, Any], environment: dict[str, Any]) -> str:
    """Clients, scheme, and the keys that the scheme names; records of older versions do not say which those are."""
    values = config.get("partition") or {}
    name = values.get("name")
    if not name:
        return ""
    headline = environment.get("partition_headline")
    shown = headline if isinstance(headline, list) else []
    keys = [f"{key} {value}" for key, value in values.items() if key in shown and value is not None]
    keys += ["clients may share samples"] if values.get("reuse") else []
    if later := newcomer_count(values.get("clients") or 0, values.get("new_clients") or 0):
        keys.append(f"{later} join after the last round")
    details = f" ({', '.join(keys)})" if keys else ""
    return f"{plural(values['clients'], 'client')}, {name}{details}" if values.get("clients") else name + details


def answer(study: Study) -> str:
    """The answer in one sentence; says when an interval includes 0."""
    return compared_answer(study) if study.is_comparison else run_answer(study)


def run_answer(study: Study) -> str:
    """The final score at both points, with intervals."""
    if study.method in study.failed_methods:
        return f"{study.method} failed."
    if study.method not in study.metrics:
        return f"{study.method} has not been evaluated yet."
    found = study.summaries[study.method]["points"]
    said = [
        f"{study.metric.with_unit(score['mean'])} {POINT_NAMES[point]} ({span(score, partial(possible, study.metric))})"
        for point in ("after_agg", "after_fit")
        if (score := found.get(point, {}).get("last", {}).get(study.test))
    ]
    if not said:
        return f"{study.method} has not been evaluated on personal models yet."
    of = "" if study.metric.share else f"a {study.metric.label} of "
    gap = f"; {gaps_of(study, study.method)}" if study.failed_seeds(study.method) else ""
    return f"{so_far(study)}{study.method} reached {of}{' and '.join(said)}{gap}."


def so_far(study: Study) -> str:
    """`So far, after round 12 of 50, ` while rounds are missing."""
    reached = reached_round(study)
    return f"So far, after {reached}, " if reached else ""


def reached_round(study: Study) -> str:
    """`round 12 of 50` while rounds of the method are missing."""
    if study.summaries[study.method]["complete"]:
        return ""
    reached, total = int(study.metrics[study.method]["round"].max()), study.config.get("rounds")
    return f"round {reached}{f' of {total}' if total else ''}"


def compared_answer(study: Study) -> str:
    """Names the winning point and its gain over local, and says whether collaboration helped."""
    plan, tried = study.plan, study.plan.points()
    chosen = plan.choices.get(study.method)
    if tried and chosen is None:
        failed = sum(entry.status == "failed" for entry in tried)
        return f"No candidate finished: {failed} of {len(tried)} failed, so there is no answer."
    winner = f"{study.method} with {settings(chosen)}" if chosen else study.method
    if study.method not in study.metrics or study.last_rows(study.method).empty:
        value = next((entry.scores.get("val") for entry in tried if entry.values == chosen), None)
        found = study.metric.with_unit(value) if value is not None else f"{study.metric.label} unknown"
        lack = "failed" if study.method in study.failed_methods else "are not finished yet"
        ties = len(plan.as_good(study.method))
        tied = f"is the first of {ties + 1} candidates with the same score on validation"
        led = tied if ties else "won on validation"
        return f"{winner} {led} ({found}); its final runs {lack}."
    reached = study.metric.with_unit(study.last_rows(study.method)[study.test].mean())
    ties = len(plan.as_good(study.method))
    first = f"is the first of {ties + 1} candidates with the same validation score and reached"
    won = first if ties else f"won the {'grid' if plan.search == 'grid' else 'search'} with" if tried else "reached"
    begin = f"{so_far(study)}{winner} {won} {reached} {POINT_NAMES[study.point]}"
    if study.method == BASELINE:
        return f"{begin}."
    gain = study.scores.difference(study.method, BASELINE, study.point)
    if gain is None:
        return f"{begin}; without a run of local the benefit of collaboration is unknown."
    return f"{begin}, {verdict(study.metric, gain, doubts(study, study.method, BASELINE, gain.mean))}"


def doubts(study: Study, method: str, other: str, gain: float) -> str:
    """Why no winner can be named although one method is ahead.

    Scores differ in kind, seeds or rounds are missing, tuning was unequal, or the loser may not be at its best.
    """
    plan = study.plan
    ours, theirs = (study.estimators.get(label, SAMPLES) for label in (method, other))
    if ours != theirs:
        return f"{method} is scored by the mean over {ours} and {other} by the mean over {theirs}"
    if gaps := next((found for label in (method, other) if (found := gaps_of(study, label))), ""):
        return gaps
    for label in (method, other):
        if study.summaries[label].get("degenerate"):
            return f"{label} is degenerate"
    if not plan.even(method, other):
        count = plural(plan.budget(method), "candidate")
        return f"{method} was tuned over {count} and {other} over {plan.budget(other)}"
    loser = other if gain >= 0 else method
    return not_bracketed(plan, loser)


def not_bracketed(plan: Plan, label: str) -> str:
    """Why a method may have a better point than its best one; empty if its neighbours on both sides were tried."""
    keys = plan.open_keys(label)
    if not keys or label not in plan.choices:
        return ""
    chosen = settings({key: plan.choices[label][key] for key in keys})
    if plan.ends.get(label):
        return f"the best candidate of {label} is at the edge of its search range ({chosen})"
    return f"not all neighbours of the best candidate of {label} were tried ({chosen})"


def doubts_of_lead(study: Study, first: str, rivals: Sequence[str]) -> str:
    """Why a method that is ahead of all rivals may not be the best."""
    if study.failed_methods:
        return f"{join_words(study.failed_methods)} failed"
    return next((found for rival in rivals if (found := doubts(study, first, rival, 1.0))), "")


def gaps_of(study: Study, label: str) -> str:
    """Which final runs are missing in a method's score; empty if none."""
    if failed := study.failed_seeds(label):
        known = len(study.last_rows(label)) if label in study.metrics else 0
        return f"{len(failed)} of {plural(known + len(failed), 'seed')} of {label} failed"
    return "" if study.summaries[label]["complete"] else f"the runs of {label} are not complete"


def verdict(metric: Metric, gain: Interval, doubt: str = "") -> str:
    """Whether a paired gain over local shows that collaboration helped, unless there is a doubt."""
    better = {True: "above", False: "below"} if metric.higher else {True: "better than", False: "worse than"}
    size_of = metric.difference(abs(gain.mean)).lstrip("+") + points(metric)
    said = f"{size_of} {better[gain.mean >= 0]} local training"
    between = f"({span(gain, metric.difference)})"
    if gain.low is None:
        return f"{said} (one seed, so no interval): it is undecided whether collaboration helped."
    if len(gain.values) < LEAST_SEEDS:
        return f"{said} {between}: {undecidable(len(gain.values))} whether collaboration helped."
    if gain.sign and doubt:
        return f"{said} {between}; but {doubt}, so it is undecided whether collaboration helped."
    if gain.sign > 0:
        return f"{said} {between}: collaboration helped."
    if gain.sign < 0:
        return f"{said} {between}: collaboration did not help."
    count = plural(len(gain.values), "seed")
    return f"{said} {between}; the interval includes 0, so with {count} it is undecided whether collaboration helped."


def undecidable(seeds: int) -> str:
    """Why one or two seeds give no verdict."""
    return "one seed is not enough to decide" if seeds == 1 else "two seeds cannot decide"


def reference_lines(study: Study) -> list[str]:
    """The lines under the answer: the subject compared with each other reference."""
    others = [method for method in study.metrics if method not in (study.method, BASELINE)]
    lines = []
    for other in others:
        gap = study.scores.difference(study.method, other, study.point)
        if gap is not None:
            said = f"{study.metric.difference(gap.mean)}{points(study.metric)}"
            doubt = doubts(study, study.method, other, gap.mean) if gap.sign else ""
            undecided = ", undecided" if gap.low is not None and not gap.sign else f"; but {doubt}" if doubt else ""
            lines.append(f"Against {other}: {said} ({span(gap, study.metric.difference)}{undecided}).")
    return [
        *lines,
        *tuning_doubts(study),
        *equal_points(study),
        *few_seeds(len(study.last_rows(study.method)) if study.method in study.metrics else 0),
    ]


def seeds_remark(study: Study) -> str:
    """How many tuning seeds points were tried on, if not all on all."""
    return ", the better half on each further tuning seed" if study.plan.drops_points_early else ""


def tuning_doubts(study: Study) -> list[str]:
    """Why the chosen points may not be the best ones, for all methods."""
    return [f"{sentence(line)}." for line in study.plan.tuning_doubts]


def equal_points(study: Study) -> list[str]:
    """Which chosen points were the first of several with the same score on validation."""
    plan = study.plan
    found = {label: plan.as_good(label) for label in plan.labels()}
    more = lambda names: " and more" if len(names) > 2 else ""  # noqa: E731
    said = [
        f"{label} ({point_name(plan.choices[label])}; also {', '.join(names[:2])}{more(names)})"
        for label, names in found.items()
        if names
    ]
    return [f"Chosen as the first of candidates with equal validation scores: {join_words(said)}."] if said else []


def few_seeds(count: int) -> list[str]:
    """The coverage of intervals over few seeds in a simulation."""
    if not 2 <= count < ENOUGH_SEEDS:
        return []
    return [
        "In a simulation with three seeds, 95\u00a0% intervals over seeds contained the true value in 95\u00a0% of "
        "cases, but only in 89\u00a0% if one seed in ten is an outlier."
    ]


def answer_tiles(study: Study) -> list[Tile]:
    """The row of key numbers under the answer."""
    if study.method not in study.metrics:
        return []
    rows = study.table[(study.table["method"] == study.method) & (study.table["choice"] == LAST)].set_index("point")
    both = [point for point in ("after_agg", "after_fit") if point in rows.index]
    found = [_score_tile(study.metric, rows.loc[point], POINT_NAMES[point]) for point in both]
    at: Any = rows.loc[study.point] if study.point in rows.index else None
    if at is not None and pd.notna(at["gain"]):
        found = [
            _gain_tile(study.metric, at),
            Tile(f"{100 * at['share_gains']:.0f}\u00a0%", "of clients gain", "over local training"),
        ]
        found.insert(0, _score_tile(study.metric, at, POINT_NAMES[study.point]))
    if at is not None and pd.notna(at["worst_tenth"]):
        worst = worst_label([int(at["fewest_scored"]), int(at["most_scored"])])
        found.append(
            _score_tile(
                study.metric,
                at,
                f"{worst}{' of clients' if worst == 'worst tenth' else ''}",
                "worst_tenth",
                "worst_tenth_",
            )
        )
    return [*found, *_cost_tiles(study)]


def _score_tile(metric: Metric, row: Any, name: str, column: str = "mean", ends: str = "") -> Tile:
    """A score with its interval. ends: how the columns of its ends begin."""
    low, high = (possible(metric, row[ends + end]) if pd.notna(row[ends + end]) else "" for end in ("low", "high"))
    return Tile(metric.with_unit(row[column]), name, f"{low} to {high}" if low else "one seed")


def _gain_tile(metric: Metric, row: pd.Series) -> Tile:
    low, high = (metric.difference(row[end]) if pd.notna(row[end]) else "" for end in ("gain_low", "gain_high"))
    name = "points over local" if metric.share else f"{metric.label}, better than local by"
    return Tile(metric.difference(row["gain"]), name, f"{low} to {high}" if low else "one seed")


def _cost_tiles(study: Study) -> list[Tile]:
    cost = study.summaries[study.method]
    traffic, seconds = (cost["bytes_up"] or 0) + (cost["bytes_down"] or 0), cost["seconds_per_round"]
    found = []
    if cost["bytes_up"] is not None:
        parts = f"{size(cost['bytes_up'])} up, {size(cost['bytes_down'] or 0)} down"
        found.append(Tile(size(traffic), "per client and round", parts))
    if seconds is not None:
        found.append(Tile(f"{seconds:.3g}\u00a0s", "per round", "median"))
    return found
