"""The outcomes that a run keeps: of every evaluated client's test samples, at all points, for the last scores."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedbench.methods.messages import Message
from fedbench.results.files import damage_error, seed_file, write_points
from fedbench.results.outcomes import EACH, OUTCOMES_FOLDER, SHARED, join, read_points, split
from fedbench.runtime.exchange import Report
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.runtime.observers.observer import Observer
from fedbench.tasks import Task
from fedbench.tasks.outcomes import block_of

PIECES = Path("checkpoint", "outcomes")
"""Where a running run stores the outcomes of an exchange, because those of its last fits come before the end."""


def outcomes_of(
    task: Task,
    batches: Sequence[tuple[Tensor, Tensor]],
    rows: Tensor,
    groups: np.ndarray | None,
    dtype: torch.dtype,
    by_batches: bool = False,
    without: Sequence[str] = (),
) -> Message:
    """A client's outcomes from its outputs and targets, on the CPU.

    rows: of its test samples in the data set `[n]`. groups: of all samples of the data set, or None. without: metrics
    whose score comes from elsewhere.
    """
    rows = rows.cpu()
    units = rows.numpy() if groups is None else groups[rows.numpy()]
    each, shared = task.outcomes_all(batches, dtype, block_of(units), by_batches)
    arrays = {f"{kind}{name}": array for kind, of in ((EACH, each), (SHARED, shared)) for name, array in of.items()}
    kept = {name: array for name, array in arrays.items() if name.partition("/")[2] not in without}
    message = Message(rows=rows, **{name: torch.from_numpy(array).float() for name, array in kept.items()})
    if groups is not None:
        message.add(groups=torch.from_numpy(units.astype(np.int64)))
    positive = [part for batch in batches if (part := task.positive(*batch)) is not None]
    if positive:
        message.add(positive=torch.cat(positive).cpu())
    return message


class KeptOutcomes(Observer):
    """Stores the outcomes that hosts send, and writes them into one file at the end.

    points: which they are. folder: of the run.
    """

    def __init__(self, points: KeptPoints, seed: int, folder: Path) -> None:
        self.points, self.folder, self.file = points, folder, seed_file(folder, OUTCOMES_FOLDER, seed)

    def on_aggregation(self, number: int, reports: Sequence[Report]) -> None:
        """Store what was received in an exchange; a run whose server half fails in round 1 leaves nothing."""
        parts: dict[str, dict[int, dict[str, np.ndarray]]] = {}
        for report, name, point in self.points.of_reports(number, reports):
            if name in report.outcomes:
                held = {key: tensor.numpy() for key, tensor in report.outcomes[name].tensors.items()}
                parts.setdefault(point, {})[report.client] = held
        if number < self.points.rounds:
            if parts:
                write_points(
                    self.folder / PIECES / f"exchange-{number:06d}.npz",
                    {p: join(pieces) for p, pieces in parts.items()},
                )
            return
        earlier = self._pieces()
        for point, pieces in parts.items():
            earlier.setdefault(point, {}).update(pieces)
        if earlier:
            write_points(self.file, {point: join(earlier[point]) for point in sorted(earlier)})

    def _pieces(self) -> dict[str, dict[int, dict[str, np.ndarray]]]:
        """The outcomes of exchanges by point and client; later ones count. Raises ConfigError for a damaged file."""
        parts: dict[str, dict[int, dict[str, np.ndarray]]] = {}
        for path in sorted((self.folder / PIECES).glob("exchange-*.npz")):
            if int(path.stem.removeprefix("exchange-")) >= self.points.rounds:
                continue
            problems: list[str] = []
            for point, arrays in read_points(path, problems).items():
                parts.setdefault(point, {}).update(split(arrays))
            if problems:
                raise damage_error(path, "damaged", self.folder)
        return parts
