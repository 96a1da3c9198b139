"""Predictions of a run: what every client's model gave for its test samples (docs/reference.md)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from fedbench.errors import ConfigError
from fedbench.results.files import read_arrays
from fedbench.results.schema import POINTS, RecordPoint

PREDICTIONS_FOLDER = "predictions"
"""A run's folder for these files, one per seed."""


@dataclass(frozen=True)
class Predictions:
    """Of one evaluation point, sample by sample, in ascending order of clients.

    clients, rows: int64 [n], whose sample it is, and its row in the data set. outputs: float32 [n, ...], of the model.
    targets: [n, ...], as the client sees them.
    """

    clients: np.ndarray
    rows: np.ndarray
    outputs: np.ndarray
    targets: np.ndarray

    def of(self, client: int) -> "Predictions":
        """The predictions of one client."""
        is_client = self.clients == client
        return Predictions(*(getattr(self, field.name)[is_client] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.clients)


def join(parts: Mapping[int, Mapping[str, np.ndarray]]) -> Predictions:
    """The predictions of all clients, from rows, outputs and targets by client."""
    names, order = ("rows", "outputs", "targets"), sorted(parts)
    clients = np.repeat(order, [len(parts[client]["rows"]) for client in order]).astype(np.int64)
    return Predictions(clients, *(np.concatenate([parts[client][name] for client in order]) for name in names))


def read_predictions(folder: Path) -> dict[tuple[int, RecordPoint], Predictions]:
    """The predictions of a run by seed and evaluation point, if it kept any. Raises ConfigError for a damaged file."""
    predictions = {}
    for path in sorted((folder / PREDICTIONS_FOLDER).glob("seed-*.npz")):
        problems: list[str] = []
        arrays, seed = read_arrays(path, problems), int(path.stem.removeprefix("seed-"))
        try:
            for point in (point for point in POINTS if f"{point}/clients" in arrays):
                held = {field.name: arrays[f"{point}/{field.name}"] for field in fields(Predictions)}
                predictions[seed, point] = Predictions(**held)
        except KeyError as error:
            problems.append(f"{error} is missing")
        if problems:
            raise ConfigError(f"{path}: damaged ({problems[0]}); run it again")
    return dict(sorted(predictions.items(), key=lambda item: (item[0][0], POINTS.index(item[0][1]))))
