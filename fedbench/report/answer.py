"""The words of the page: what was asked, the answer in one sentence, and the numbers beside it."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedbench.report.study import POINT_NAMES, Study
from fedbench.results.statistics import Interval
from fedbench.results.tables import BASELINE, LAST, difference

PARTITION_KEYS = {
    "iid": [],
    "shards": ["classes", "images"],
    "pathological": ["classes", "train_size"],
    "dirichlet": ["alpha"],
    "dirichlet-fixed": ["alpha", "train_size"],
    "practical": ["alpha", "total"],
    "domain": ["train_size"],
    "domain-shards": ["classes", "images"],
    "corruption": ["classes", "images"],
    "file": ["path"],
}


@dataclass(frozen=True)
class Tile:
    """One number of the row of tiles."""

    value: str
    name: str
    note: str = ""


def percent(value: float) -> str:
    """A fraction as `84.2 %`."""
    return f"{100 * value:.1f}\u00a0%"


def possible(value: float) -> str:
    """An end of an accuracy's interval, which is cut at what an accuracy can be."""
    return percent(min(1.0, max(0.0, value)))


def points(value: float) -> str:
    """A difference of fractions as `+3.4` points, with a true minus."""
    return f"{round(100 * value, 1) + 0.0:+.1f}".replace("-", "−")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: float) -> str:
    """Bytes as `1.2 MB` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f}\u00a0{unit}" if unit == "B" else f"{count:.3g}\u00a0{unit}"
        count /= 1000
    raise AssertionError


def settings(values: dict[str, Any]) -> str:
    """`{"tau": 0.3, "beta": 5}` -> `tau = 0.3 and beta = 5`."""
    parts = [f"{key.removeprefix('method.')} = {'none' if value is None else value}" for key, value in values.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def span(found: Interval | dict[str, Any], form: Any) -> str:
    """`95 % interval a to b`, or why there is none."""
    low, high = (found.low, found.high) if isinstance(found, Interval) else (found["low"], found["high"])
    return f"95\u00a0% interval {form(low)} to {form(high)}" if low is not None else "one seed, so no interval"


def asked(study: Study) -> str:
    """One line under the title: partition, model, rounds, seeds, and the space of a grid."""
    config = study.config
    parts = [_partition(config)]
    parts += [f"model {_name(config, 'model')}"] if _name(config, "model") else []
    parts += [plural(config["rounds"], "round")] if config.get("rounds") else []
    seeds = config.get("seeds") or []
    parts += [f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"] if seeds else []
    if study.grid:
        space = " × ".join(key.removeprefix("method.") for key in study.grid.space())
        metric = "test" if str(study.grid.grid().get("metric")).startswith("test") else "validation"
        parts.append(f"{len(study.grid.cells())} points of {space}, chosen on {metric} accuracy")
    return "; ".join(part for part in parts if part)


def _name(config: dict[str, Any], section: str) -> str:
    value = config.get(section)
    return str(value.get("name", "")) if isinstance(value, dict) else str(value or "")


def _partition(config: dict[str, Any]) -> str:
    values = config.get("partition") or {}
    name = values.get("name")
    if not name:
        return ""
    keys = [f"{key} {values[key]}" for key in PARTITION_KEYS.get(name, []) if values.get(key) is not None]
    details = f" ({', '.join(keys)})" if keys else ""
    return f"{plural(values['clients'], 'client')}, {name}{details}" if values.get("clients") else name + details


def answer(study: Study) -> str:
    """The answer in one sentence, honest about an interval that includes 0."""
    return grid_answer(study) if study.grid else run_answer(study)


def run_answer(study: Study) -> str:
    """Final accuracy at both points, with intervals."""
    if study.method not in study.metrics:
        return f"{study.method} has not been evaluated yet."
    found = study.summaries[study.method]["points"]
    said = [
        f"{percent(accuracy['mean'])} {POINT_NAMES[point]} ({span(accuracy, possible)})"
        for point in ("after_agg", "after_fit")
        if (accuracy := found.get(point, {}).get("last", {}).get("test_accuracy"))
    ]
    if not said:
        return f"{study.method} has not been evaluated on personal models yet."
    return f"{so_far(study)}{study.method} reached {' and '.join(said)}."


def so_far(study: Study) -> str:
    """`After round 12 of 50, ` while rounds are missing."""
    if study.summaries[study.method]["complete"]:
        return ""
    reached, total = int(study.metrics[study.method]["round"].max()), study.config.get("rounds")
    return f"So far, after round {reached}{f' of {total}' if total else ''}, "


def grid_answer(study: Study) -> str:
    """Which point won, by how much over local, and whether collaboration paid."""
    assert study.grid
    best, cells = study.grid.best(), study.grid.cells()
    if best is None:
        return _without_winner(cells)
    winner = f"{study.method} with {settings(best.get('values') or {})}" if best.get("values") else study.method
    if study.method not in study.metrics or study.last(study.method).empty:
        return f"{winner} won on validation ({_validation(best)}); its final runs are not there yet."
    reached = percent(study.last(study.method)["test_accuracy"].mean())
    begin = f"{so_far(study)}{winner} won the grid with {reached} {POINT_NAMES[study.point]}"
    gain = difference(study.method, BASELINE, study.point, study.metrics, study.clients)
    if gain is None:
        return f"{begin}; without a run of local there is nothing to say about collaboration."
    return f"{begin}, {verdict(gain)}"


def _without_winner(cells: pd.DataFrame) -> str:
    failed = int((cells["status"] == "failed").sum())
    return f"No point of the grid finished: {failed} of {len(cells)} failed, so there is no answer."


def _validation(cell: dict[str, Any]) -> str:
    value = cell.get("val_accuracy")
    return percent(value) if value is not None else "accuracy unknown"


def verdict(gain: Interval) -> str:
    """What a paired difference from local says about collaboration."""
    size_of = f"{100 * abs(gain.mean):.1f} points {'above' if gain.mean >= 0 else 'below'} training alone"
    between = f"({span(gain, points)})"
    if gain.low is None:
        return f"{size_of} (one seed, so no interval): whether collaboration paid is undecided."
    if gain.sign > 0:
        return f"{size_of} {between}: collaboration paid."
    if gain.sign < 0:
        return f"{size_of} {between}: collaboration did not pay."
    count = plural(len(gain.values), "seed")
    return f"{size_of} {between}; the interval includes 0, so with {count} it is undecided whether collaboration paid."


def besides(study: Study) -> list[str]:
    """What stands under the answer: the own method against every other reference."""
    others = [method for method in study.metrics if method not in (study.method, BASELINE)]
    lines = []
    for other in others:
        gap = difference(study.method, other, study.point, study.metrics, study.clients)
        if gap is not None:
            lines.append(f"Against {other}: {points(gap.mean)} points ({_reading(gap)}).")
    return lines


def _reading(gap: Interval) -> str:
    return f"{span(gap, points)}{', undecided' if gap.low is not None and not gap.sign else ''}"


def tiles(study: Study) -> list[Tile]:
    """The row of numbers under the answer."""
    if study.method not in study.metrics:
        return []
    rows = study.table[(study.table["method"] == study.method) & (study.table["choice"] == LAST)].set_index("point")
    found = [_accuracy_tile(rows, point) for point in ("after_agg", "after_fit") if point in rows.index]
    at = rows.loc[study.point] if study.point in rows.index else None
    if at is not None and pd.notna(at["gain"]):
        found = [
            _gain_tile(at),
            Tile(f"{100 * at['share_gains']:.0f}\u00a0%", "of clients gain", "over training alone"),
        ]
        found.insert(0, _accuracy_tile(rows, study.point))
    if at is not None and pd.notna(at["worst_tenth"]):
        found.append(Tile(percent(at["worst_tenth"]), "worst tenth of clients", POINT_NAMES[study.point]))
    return [*found, *_cost_tiles(study)]


def _accuracy_tile(rows: pd.DataFrame, point: str) -> Tile:
    row = rows.loc[point]
    note = f"{possible(row['low'])} to {possible(row['high'])}" if pd.notna(row["low"]) else "one seed"
    return Tile(percent(row["mean"]), POINT_NAMES[point], note)


def _gain_tile(row: pd.Series) -> Tile:
    note = f"{points(row['gain_low'])} to {points(row['gain_high'])}" if pd.notna(row["gain_low"]) else "one seed"
    return Tile(points(row["gain"]), "points over local", note)


def _cost_tiles(study: Study) -> list[Tile]:
    cost = study.summaries[study.method]
    traffic, seconds = (cost["bytes_up"] or 0) + (cost["bytes_down"] or 0), cost["seconds_per_round"]
    found = []
    if cost["bytes_up"] is not None:
        parts = f"{size(cost['bytes_up'])} up, {size(cost['bytes_down'] or 0)} down"
        found.append(Tile(size(traffic), "per client and round", parts))
    if seconds is not None:
        found.append(Tile(f"{seconds:.3g}\u00a0s", "for a round", "median"))
    return found
