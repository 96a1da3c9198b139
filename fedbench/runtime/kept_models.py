"""The personal models that a run keeps: the last of every evaluated client, at both points."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fedbench.config import Config
from fedbench.models.state_dicts import encode_state_dict
from fedbench.results.files import write_atomically, write_json_atomically
from fedbench.runtime.exchange import Report
from fedbench.runtime.kept_points import KeptPoints

MODELS_FOLDER = "models"
"""A run's folder for these models."""
INPUT = "input.json"
"""Its file that describes the models' inputs (`Dataset.inputs`)."""


class KeptModels:
    """Writes the models that hosts send below a run's folder.

    points: which they are. inputs: describes the models' inputs, written beside them. frozen: names of frozen
    parameters; if there are any, the trained ones, such as adapters, are also kept in a file of their own.
    """

    def __init__(
        self,
        config: Config,
        seed: int,
        points: KeptPoints,
        folder: Path,
        inputs: Mapping[str, Any] = MappingProxyType({}),
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.points, self.frozen, self.inputs = points, frozen, dict(inputs)
        self.wanted, self.name = config.save_models, config.method.name
        self.folder = folder / MODELS_FOLDER / f"seed-{seed}"

    def take(self, number: int, reports: Sequence[Report]) -> Iterator[str]:
        """Write the received models; yields a warning for each that could not be written."""
        for report in reports if self.wanted else ():
            for name in self.points.asked(report.client, number):
                for point in self.points.points(name):
                    if name in report.models:
                        self._describe()
                        self._write(f"client-{report.client}-{point}", report.models[name].tensors)
                    elif name in report.scores:
                        yield (
                            f"save_models: {self.name}'s personal model at {point} is not one state dict of the model, "
                            "so it is not kept"
                        )
                    elif name == "after_fit" and report.failure:
                        yield f"save_models: client {report.client} has no model at after_fit: its last fit failed"

    def forget_after(self, round: int) -> None:
        """Delete the models that later rounds replace, kept by a run that ended in this round or before."""
        for client, last in self.points.last.items() if self.folder.exists() else ():
            names = [f"client-{client}-after_agg*.pt", *([f"client-{client}-after_fit*.pt"] if last > round else [])]
            for path in (path for name in names for path in self.folder.glob(name)):
                path.unlink()

    def _write(self, name: str, tensors: dict[str, Tensor]) -> None:
        write_atomically(self.folder / f"{name}.pt", encode_state_dict(tensors))
        if self.frozen:
            trained = {key: tensor for key, tensor in tensors.items() if key not in self.frozen}
            write_atomically(self.folder / f"{name}-trained.pt", encode_state_dict(trained))

    def _describe(self) -> None:
        """Write the description of the inputs, then make the models' folder."""
        if not self.folder.exists():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomically(self.folder.parent / INPUT, self.inputs)
            self.folder.mkdir()
