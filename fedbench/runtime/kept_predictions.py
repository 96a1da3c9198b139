"""The predictions that a run keeps: those of every evaluated client on its test samples, at both points."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.files import read_arrays, rerun_hint, write_arrays_atomically
from fedbench.results.predictions import join, seed_file, write_predictions
from fedbench.runtime.exchange import Report
from fedbench.runtime.kept_points import KeptPoints

PIECES = Path("checkpoint", "predictions")
"""Where a running run stores the predictions of an exchange, because those of its last fits come before the end."""


class KeptPredictions:
    """Stores the predictions that hosts send, and writes them into one file at the end.

    points: which they are. folder: of the run.
    """

    def __init__(self, config: Config, seed: int, points: KeptPoints, folder: Path) -> None:
        self.points, self.saves = points, config.save_predictions
        self.folder, self.file = folder, seed_file(folder, seed)

    def take(self, number: int, reports: Sequence[Report]) -> Iterator[str]:
        """Store what was received; yields a warning for each client that has none at a point."""
        if not self.saves:
            return
        arrays: dict[str, np.ndarray] = {}
        for report, name, point in self.points.of_reports(number, reports):
            if name in report.predictions:
                held = report.predictions[name].tensors.items()
                arrays |= {f"{point}/{report.client}/{key}": tensor.numpy() for key, tensor in held}
            elif name == "after_fit" and report.failure:
                yield f"save_predictions: client {report.client} has none at after_fit: its last fit failed"
        if arrays:
            pieces = self.folder / PIECES
            pieces.mkdir(parents=True, exist_ok=True)
            write_arrays_atomically(pieces / f"exchange-{number:06d}.npz", arrays)
        if number == self.points.rounds:
            self._write_all()

    def _write_all(self) -> None:
        """Write the predictions of all exchanges. Raises ConfigError if those of one cannot be read."""
        parts: dict[str, dict[int, dict[str, np.ndarray]]] = {}
        for path in sorted((self.folder / PIECES).glob("exchange-*.npz")):
            problems: list[str] = []
            for name, array in read_arrays(path, problems).items():
                point, client, key = name.split("/")
                parts.setdefault(point, {}).setdefault(int(client), {})[key] = array
            if problems:
                raise ConfigError(f"{path}: damaged; {rerun_hint(self.folder)}")
        write_predictions(self.file, {point: join(parts[point]) for point in sorted(parts)})
