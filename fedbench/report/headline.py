"""The head of a report beside its answer: the line under the title, and key numbers."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedbench.config.counts import newcomer_count
from fedbench.config.words import plural
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import join_words
from fedbench.report.verdicts import margin_text, most_seeds
from fedbench.results.plan import text_of
from fedbench.results.quantities import seed_range, size
from fedbench.results.tables import LAST
from fedbench.results.unscored import worst_label
from fedbench.tasks import Metric


@dataclass(frozen=True)
class Tile:
    """One tile in the row of key numbers."""

    value: str
    name: str
    note: str = ""


def subtitle(survey: SettingsStudy) -> str:
    """The line under the title."""
    return settings_subtitle(survey) if survey.has_settings else study_subtitle(survey.first_study)


def settings_subtitle(survey: SettingsStudy) -> str:
    """The values of each key, and the seeds, or the rules of sequential tests, fixed beforehand."""
    parts = [f"{key}: {join_words(list(map(text_of, values)))}" for key, values in survey.file.over.items()]
    if survey.is_sequential:
        parts.append(f"margin {margin_text(survey.first_study)}, at most {most_seeds(survey.first_study)}")
    else:
        parts.append(seed_range(survey.file.config.get("seeds") or []))
    return "; ".join(filter(None, parts))


def study_subtitle(study: Study) -> str:
    """Partition, model, rounds, seeds, and the space of a grid."""
    config = study.config
    parts = [partition_words(config, study.records.environment() if study.records else {})]
    parts += [f"model {_name(config, 'model')}"] if _name(config, "model") else []
    parts += [plural(config["rounds"], "round")] if config.get("rounds") else []
    seeds = study.plan.config.get("seeds") or config.get("seeds") or []
    if study.sequential_test is not None:
        seeds = sorted({*seeds, *(entry.seed for entry in study.plan.entries if entry.role == "final")})
    parts += [seed_range(seeds)] if seeds else []
    if study.sequential_test is not None:
        parts.append(f"margin {margin_text(study)}, at most {most_seeds(study)}")
    if candidates := study.plan.points():
        space = " × ".join(key.removeprefix("method.") for key in study.plan.spaces[study.method])
        where = f"chosen on validation {study.metric.label} {POINT_NAMES[study.point]}{seeds_remark(study)}"
        parts.append(f"{plural(len(candidates), 'candidate')} of {space}, {where}")
    parts += [study.remark] if len(set(study.estimators.values())) == 1 else []
    return "; ".join(part for part in parts if part)


def _name(config: dict[str, Any], section: str) -> str:
    value = config.get(section)
    return str(value.get("name", "")) if isinstance(value, dict) else str(value or "")


def partition_words(config: dict[str, Any], environment: dict[str, Any]) -> str:
    """Clients, scheme, and the keys that the scheme names."""
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


def seeds_remark(study: Study) -> str:
    """How many tuning seeds points were tried on, if not all on all."""
    return ", the better half on each further tuning seed" if study.plan.drops_points_early else ""


def answer_tiles(study: Study) -> list[Tile]:
    """The row of key numbers under the answer."""
    if study.method not in study.metrics:
        return []
    rows = study.table[(study.table["method"] == study.method) & (study.table["choice"] == LAST)].set_index("point")
    both = [point for point in ("after_agg", "after_fit") if point in rows.index]
    tiles = [_score_tile(study.metric, rows.loc[point], POINT_NAMES[point]) for point in both]
    at: Any = rows.loc[study.point] if study.point in rows.index else None
    if at is not None and pd.notna(at["gain"]):
        tiles = [
            _gain_tile(study.metric, at),
            Tile(f"{100 * at['share_gains']:.0f}\u00a0%", "of clients gain", "over local training"),
        ]
        tiles.insert(0, _score_tile(study.metric, at, POINT_NAMES[study.point]))
    if at is not None and pd.notna(at["worst_tenth"]):
        worst = worst_label([int(at["fewest_scored"]), int(at["most_scored"])])
        tiles.append(
            _score_tile(
                study.metric,
                at,
                f"{worst}{' of clients' if worst == 'worst tenth' else ''}",
                "worst_tenth",
                "worst_tenth_",
            )
        )
    return [*tiles, *_cost_tiles(study)]


def _score_tile(metric: Metric, row: Any, name: str, column: str = "mean", ends: str = "") -> Tile:
    """A score with its interval. ends: how the columns of its ends begin."""
    low, high = (metric.with_unit(row[ends + end]) if pd.notna(row[ends + end]) else "" for end in ("low", "high"))
    return Tile(metric.with_unit(row[column]), name, f"{low} to {high}" if low else "one seed")


def _gain_tile(metric: Metric, row: pd.Series) -> Tile:
    low, high = (metric.difference(row[end]) if pd.notna(row[end]) else "" for end in ("gain_low", "gain_high"))
    name = "points over local" if metric.share else f"{metric.label}, better than local by"
    return Tile(metric.difference(row["gain"]), name, f"{low} to {high}" if low else "one seed")


def _cost_tiles(study: Study) -> list[Tile]:
    cost = study.summaries[study.method]
    traffic, seconds = (cost["bytes_up"] or 0) + (cost["bytes_down"] or 0), cost["seconds_per_round"]
    tiles = []
    if cost["bytes_up"] is not None:
        parts = f"{size(cost['bytes_up'])} up, {size(cost['bytes_down'] or 0)} down"
        tiles.append(Tile(size(traffic), "per client and round", parts))
    if seconds is not None:
        tiles.append(Tile(f"{seconds:.3g}\u00a0s", "per round", "median"))
    return tiles
