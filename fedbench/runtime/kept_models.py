"""The personal models that a run keeps: the last of every evaluated client, at both points."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fedbench.config import Config
from fedbench.models.state_dicts import encode_state_dict
from fedbench.results.files import write_atomically, write_json_atomically
from fedbench.runtime.exchange import Report

MODELS_FOLDER = "models"
"""A run's folder for these models."""
INPUT = "input.json"
"""Its file that describes the models' inputs (`Dataset.inputs`)."""


class KeptModels:
    """Selects the models that hosts send, and writes them below a run's folder.

    after_fit: origin of the method's models of this point (`Method.after_fit`). drawn: the participants of a round.
    inputs: describes the models' inputs, written beside them. frozen: names of frozen parameters; if there are any, the
    trained ones, such as adapters, are also kept in a file of their own.
    """

    def __init__(
        self,
        config: Config,
        seed: int,
        after_fit: str,
        folder: Path,
        drawn: Callable[[int], Iterable[int]],
        inputs: Mapping[str, Any] = MappingProxyType({}),
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.frozen = frozen
        self.inputs = dict(inputs)
        self.wanted, self.rounds, self.name = config.save_models, config.rounds, config.method.name
        self.after_fit = after_fit
        self.folder, self._drawn = folder / MODELS_FOLDER / f"seed-{seed}", drawn

    def asked(self, client: int, number: int) -> Sequence[str]:
        """The models to keep of a client in this exchange, among those evaluated in it."""
        if not self.wanted:
            return ()
        last, ends = self._last.get(client, 0), number == self.rounds
        when = {
            "after_agg": ends,
            "global": ends and self.after_fit == "global",
            "after_fit": last == number + 1,
            "idle_model": last <= number,
        }
        return [name for name, now in when.items() if now]

    @cached_property
    def _last(self) -> dict[int, int]:
        """The last round in which each client trains."""
        return {client: round for round in range(1, self.rounds + 1) for client in self._drawn(round)}

    def take(self, number: int, reports: Sequence[Report]) -> Iterator[str]:
        """Write the received models; yields a warning for each that could not be written."""
        for report in reports:
            for name in self.asked(report.client, number):
                for point in self._points(name):
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
        for client, last in self._last.items() if self.folder.exists() else ():
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

    def _points(self, name: str) -> list[str]:
        """The evaluation points that use this model."""
        if name != "after_agg":
            return ["after_fit"]
        return ["after_agg", "after_fit"] if self.after_fit == "after_agg" else ["after_agg"]
