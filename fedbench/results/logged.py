"""Records of a round for loggers: numbers with the same names for every method and seed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fedbench.results.reader import Records

LoggedRow = Mapping[str, Any]
Warn = Callable[[str], None]
"""Called with what cannot be logged as it was asked for, and why."""

MOST_CURVES = 50  # above it, clients become quantiles: W&B and TensorBoard cannot handle hundreds of keys per round
QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
NOT_CURVES = ("seed", "round", "point", "failed")


def metric_values(lines: Iterable[LoggedRow]) -> dict[str, float]:
    """Lines of metrics.jsonl of one round as `after_agg/test_accuracy: 0.8`, without null and NaN."""
    values: dict[str, float] = {}
    for line in lines:
        point = line["point"]
        numbers = {k: v for k, v in line.items() if k not in NOT_CURVES and v is not None}
        values |= {f"{point}/{k}": v for k, v in numbers.items() if np.isfinite(v)}
        if line.get("failed"):
            values[f"{point}/failed"] = len(line["failed"])
    return values


def trace_values(traces: Iterable[LoggedRow]) -> dict[str, float]:
    """Rows of traces.parquet of one round as `lambda/client_03: 0.4`, or as quantiles for more than 50 clients.

    A name with a slash (`critical_share/<layer>`) is averaged over clients; the server's traces keep their name.
    """
    values: dict[str, float] = {}
    for name, of_client in _by_name(traces).items():
        values |= _curves(name, of_client)
    return values


def client_curves(point: str, metric: str, values: Mapping[int, float], seed: int, round: int) -> list[LoggedRow]:
    """The scores of clients in a round as rows like those of traces, `after_agg_test_accuracy/client_03: 0.8`."""
    name = f"{point}_test_{metric}"
    return [dict(seed=seed, round=round, client=client, name=name, value=value) for client, value in values.items()]


def curve_rows(records: Records) -> list[LoggedRow]:
    """Rows of traces.parquet and, if the run has `log_clients`, the test scores of its clients in the same form."""
    logged: list[Any] = records.traces().to_dict("records")
    if records.config().get("log_clients"):
        metric = records.metric().name
        for point, rows in records.clients().groupby("point"):
            scores = zip(rows["seed"], rows["round"], rows["client"], rows[f"test_{metric}"], strict=True)
            for seed, round, client, value in scores:
                logged += client_curves(str(point), metric, {client: value}, seed, round)
    return logged


def trace_distributions(traces: Iterable[LoggedRow]) -> dict[str, np.ndarray]:
    """The values over clients `[clients]` of every client trace, as `lambda/histogram`."""
    return {
        f"{name}/histogram": np.array(list(of_client.values()))
        for name, of_client in _by_name(traces).items()
        if "/" not in name and set(of_client) != {-1}
    }


def rows_by_round(rows: Iterable[LoggedRow]) -> dict[int, list[LoggedRow]]:
    """Rows by round, in ascending order."""
    rounds: dict[int, list[LoggedRow]] = defaultdict(list)
    for row in rows:
        rounds[int(row["round"])].append(row)
    return defaultdict(list, sorted(rounds.items()))


class CumulativeCosts:
    """Cumulative bytes (both ways) and gradient steps of all clients.

    A round without evaluation has no line: its costs are in the mean that the next line has.
    """

    def __init__(self) -> None:
        self._costs: dict[int, tuple[float, float]] = {}

    def note(self, number: int, lines: Iterable[LoggedRow]) -> None:
        """Adds or replaces the lines of a round."""
        costs = [[_finite_or_zero(line.get(key)) for key in ("bytes_up", "bytes_down", "steps")] for line in lines]
        up, down, steps = map(sum, zip(*costs, strict=True)) if costs else (0.0, 0.0, 0.0)
        self._costs[number] = (up + down, steps)

    def until(self, number: int) -> dict[str, float]:
        """`{"bytes", "steps"}` of all noted rounds up to this one."""
        rounds = [0, *(r for r in sorted(self._costs) if 0 < r <= number)]
        weighed = [(now - before, *self._costs[now]) for before, now in pairwise(rounds)]
        return {
            "bytes": sum(count * sent for count, sent, _ in weighed),
            "steps": sum(count * steps for count, _, steps in weighed),
        }


def _finite_or_zero(value: float | None) -> float:
    return 0.0 if value is None or not np.isfinite(value) else value


def _by_name(traces: Iterable[LoggedRow]) -> dict[str, dict[int, float]]:
    """`{name: {client: value}}`, finite values only."""
    named: dict[str, dict[int, float]] = defaultdict(dict)
    for row in traces:
        if np.isfinite(row["value"]):
            named[row["name"]][int(row["client"])] = float(row["value"])
    return named


def _curves(name: str, of_client: dict[int, float]) -> dict[str, float]:
    if set(of_client) == {-1}:
        return {name: of_client[-1]}
    if "/" in name:
        return {name: float(np.mean(list(of_client.values())))}
    if len(of_client) > MOST_CURVES:
        quantiles = np.quantile(list(of_client.values()), list(QUANTILES.values()))
        return {f"{name}/{key}": float(value) for key, value in zip(QUANTILES, quantiles, strict=True)}
    return {f"{name}/client_{client:02d}": value for client, value in sorted(of_client.items())}
