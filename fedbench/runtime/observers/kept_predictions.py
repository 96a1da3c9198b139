"""The predictions on their test samples of every evaluated client after the last round, at both points.

A run keeps them if it is asked to, and computes the metric of all samples together, if it is no mean over samples.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedbench.config import Config
from fedbench.results.files import damage_error, read_arrays, seed_file, write_arrays_atomically, write_points
from fedbench.results.predictions import PREDICTIONS_FOLDER, join
from fedbench.runtime.exchange import Report
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.runtime.observers.observer import Observer
from fedbench.tasks import Task, pooled_value

PIECES = Path("checkpoint", "predictions")
"""Where a running run stores the predictions of an exchange, because those of its last fits come before the end."""


class KeptPredictions(Observer):
    """Stores the predictions that hosts send; at the end it pools them, and writes them into one file.

    points: which they are. folder: of the run. pooled: the primary metric over the samples of all clients, by point,
    once all predictions are there.
    """

    def __init__(self, config: Config, seed: int, points: KeptPoints, folder: Path, task: Task) -> None:
        self.points, self.saves, self.task = points, config.save_predictions, task
        self.folder, self.file = folder, seed_file(folder, PREDICTIONS_FOLDER, seed)
        self.pooled: dict[str, float] = {}

    def on_reports(self, number: int, reports: Sequence[Report]) -> Iterator[str]:
        """Store what was received; yields a warning for each client that has none at a point."""
        if not sends_outputs(self.saves, self.task):
            return
        arrays: dict[str, np.ndarray] = {}
        for report, name, point in self.points.of_reports(number, reports):
            if name in report.predictions:
                held = report.predictions[name].tensors.items()
                arrays |= {f"{point}/{report.client}/{key}": tensor.numpy() for key, tensor in held}
            elif self.saves and name == "after_fit" and report.failure:
                yield f"save_predictions: client {report.client} has none at after_fit: its last fit failed"
        if arrays:
            pieces = self.folder / PIECES
            pieces.mkdir(parents=True, exist_ok=True)
            write_arrays_atomically(pieces / f"exchange-{number:06d}.npz", arrays)
        if number == self.points.rounds:
            self._end()

    def _end(self) -> None:
        """Pool and write the predictions of all exchanges. Raises ConfigError if those of one cannot be read."""
        parts: dict[str, dict[int, dict[str, np.ndarray]]] = {}
        for path in sorted((self.folder / PIECES).glob("exchange-*.npz")):
            problems: list[str] = []
            for name, array in read_arrays(path, problems).items():
                point, client, key = name.split("/")
                parts.setdefault(point, {}).setdefault(int(client), {})[key] = array
            if problems:
                raise damage_error(path, "damaged", self.folder)
        whole = {point: join(parts[point]) for point in sorted(parts)}
        if self.task.primary.pooled:
            values = {
                p: pooled_value(self.task, predictions.outputs, predictions.targets) for p, predictions in whole.items()
            }
            self.pooled = {point: value for point, value in values.items() if value is not None}
        if self.saves:
            write_points(self.file, {point: vars(predictions) for point, predictions in whole.items()})


def sends_outputs(saves: bool, task: Task) -> bool:
    """Whether hosts send the outputs at the points to keep. saves: whether the run keeps predictions."""
    return saves or task.primary.pooled
