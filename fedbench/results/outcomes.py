"""Outcomes of a run: one number per evaluation point, client, test sample and metric (docs/reference.md)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedbench.results.files import read_arrays
from fedbench.results.schema import POINTS
from fedbench.tasks.outcomes import block_of

OUTCOMES_FOLDER = "outcomes"
"""A run's folder for these files, one per seed."""
OUTCOMES = f"{OUTCOMES_FOLDER}/seed-*.npz"
EACH, SHARED = "each/", "shared/"
"""How the arrays of outcomes begin: those of single samples, and those that the samples of a block share."""


@dataclass(frozen=True)
class PointOutcomes:
    """Of one seed and evaluation point, in ascending order of clients.

    clients: int32 [n], whose sample it is. rows: int64 [n], its row in the data set. groups: int64 [n], what it belongs
    to, such as a patient, or None. positive: bool [n], whether it is of class 1, or None with other classes than two.
    values: float32 [n] by EACH or SHARED and the metric.
    """

    clients: np.ndarray
    rows: np.ndarray
    groups: np.ndarray | None = None
    positive: np.ndarray | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict)

    def of(self, metric: str) -> "MetricOutcomes | None":
        """The outcomes of a metric; None if it has none."""
        units = self.rows if self.groups is None else self.groups
        for kind in (EACH, SHARED):
            if (values := self.values.get(f"{kind}{metric}")) is not None:
                units = units if kind == EACH else block_of(units)
                return MetricOutcomes(self.clients, self.rows, units, values.astype(float), self.positive)
        return None


@dataclass(frozen=True)
class MetricOutcomes:
    """The outcomes `[n]` of a metric. units: numbers of what was drawn independently: rows, groups, or blocks."""

    clients: np.ndarray
    rows: np.ndarray
    units: np.ndarray
    values: np.ndarray
    positive: np.ndarray | None = None


def join(parts: Mapping[int, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of a point, from those of its clients. Metrics that a client lacks are NaN there."""
    order = sorted(parts)
    counts = [len(parts[client]["rows"]) for client in order]
    arrays = {"clients": np.repeat(order, counts).astype(np.int32)}
    for name in sorted({name for values in parts.values() for name in values}):
        unknown = [np.full(count, np.nan, np.float32) for count in counts]
        arrays[name] = np.concatenate([parts[c].get(name, gap) for c, gap in zip(order, unknown, strict=True)])
    return arrays


def split(arrays: Mapping[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
    """The arrays of a point by client."""
    clients, starts = np.unique(arrays["clients"], return_index=True)
    pieces = {name: np.split(array, starts[1:]) for name, array in arrays.items() if name != "clients"}
    return {int(client): {name: piece[i] for name, piece in pieces.items()} for i, client in enumerate(clients)}


def read_points(path: Path, problems: list[str]) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of a file by point; none if it is missing or damaged; the latter is named in `problems`."""
    arrays = read_arrays(path, problems)
    points: dict[str, dict[str, np.ndarray]] = {
        point: {name.removeprefix(f"{point}/"): array for name, array in arrays.items() if name.startswith(f"{point}/")}
        for point in POINTS
    }
    whole = {point: held for point, held in points.items() if held}
    if any(not {"clients", "rows"} <= set(held) or len({len(a) for a in held.values()}) > 1 for held in whole.values()):
        problems.append(f"{path.name} is damaged and is left out")
        return {}
    return whole


def read_outcomes(paths: Iterable[Path], problems: list[str]) -> dict[tuple[int, str], PointOutcomes]:
    """The outcomes in a run's files by seed and point."""
    outcomes = {}
    for path in paths:
        seed = int(path.stem.removeprefix("seed-"))
        for point, arrays in read_points(path, problems).items():
            values = {name: array for name, array in arrays.items() if name.startswith((EACH, SHARED))}
            more = arrays.get("groups"), arrays.get("positive")
            outcomes[seed, point] = PointOutcomes(arrays["clients"], arrays["rows"], *more, values)
    return outcomes
