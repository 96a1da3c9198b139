"""The models that a run keeps: each evaluated client's last one at both points, and the global or shared one."""

import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedbench.data.imputation import medians_of
from fedbench.data.partitions import Partition
from fedbench.models.compiled import unwrapped_name
from fedbench.models.state_dicts import encode_state_dict
from fedbench.module.weights import Weights
from fedbench.results.files import write_atomically
from fedbench.runtime.build import RunParts
from fedbench.runtime.exchange import Report
from fedbench.runtime.kept.model_folder import (
    ABOUT,
    INTO_FORWARD,
    OTHER_WAYS,
    about_model,
    raw_columns,
    transfer_hooks,
    with_buffers,
    write_adapters,
    write_beside,
)
from fedbench.runtime.kept.paths import GLOBAL, MODELS_FOLDER, SHARED, base_file, client_folder
from fedbench.runtime.kept.predict_script import from_run
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.runtime.observers.observer import Observer
from fedbench.runtime.server.server_half import ServerHalf


class KeptModels(Observer):
    """Writes the models that hosts send, and the server's, below a run's folder.

    points: which they are. partition: has the samples whose medians stand for missing values. In a folder for each
    client lie the trained tensors of each point, as adapters too if the module is one of `peft`; what a module needs
    besides is written once for each model.
    """

    def __init__(
        self, parts: RunParts, partition: Partition, server_half: ServerHalf, points: KeptPoints, folder: Path
    ) -> None:
        self.points, self.parts, self.server_half, config = points, parts, server_half, parts.run.config
        self.partition = partition
        self.saves, self.name = config.save_models, config.method.name
        self.folder = folder / MODELS_FOLDER / f"seed-{parts.seed}"
        self._known: dict[str, dict[str, Any]] = {}

    def on_reports(self, number: int, reports: Sequence[Report]) -> Iterator[str]:
        """Write the received models, in the end the server's too; yields a warning for each that is not written."""
        if not self.saves:
            return
        yield from self._take(number, reports)
        if number == self.points.rounds:
            whole, is_missing = self.server_half.global_weights(), self.server_half.global_model.is_missing
            part = None if whole or is_missing else self.server_half.call("shared_part", self.server_half.initial)
            yield from self.take_from_server(whole, part)

    def _take(self, number: int, reports: Sequence[Report]) -> Iterator[str]:
        for report, name, point in self.points.of_reports(number, reports):
            if name in report.models:
                model_parts, tensors = self.parts.of(report.client), report.models[name].tensors
                yield from self._write(model_parts, report.client, point, tensors)
            elif name in report.scores:
                yield (
                    f"save_models: {self.name}'s personal model at {point} is not one state dict of the model, so it "
                    "is not kept"
                )
            elif name == "after_fit" and report.failure:
                yield f"save_models: client {report.client} has no model at after_fit: its last fit failed"

    def take_from_server(self, whole: Weights | None, part: Weights | None) -> Iterator[str]:
        """Write the global model after the last aggregation, or what clients share of it; yields warnings.

        part: what `Method.shared_part` returns, if there is no global model.
        """
        flat, given = self.parts.learner.flat, whole or part
        tensors = None if given is None else flat.trained_state_dict(given)
        if given is not None and tensors is None:
            yield f"save_models: {self.name}'s global model is not one state dict of the model, so it is not kept"
        elif whole is not None and tensors is not None:
            yield from self._write(self.parts, None, "after_agg", tensors)
        elif tensors is not None:
            shared = {key: tensor for key, tensor in tensors.items() if unwrapped_name(key) not in self._private}
            yield from self._write(self.parts, None, "after_agg", shared, SHARED, predicts=False)
            yield f"save_models: {self.name} has no global model; models/seed-*/{SHARED} has what its clients share"
        else:
            yield f"save_models: {self.name} has no global model and no part that all clients share"

    def on_longer_run(self, round: int) -> None:
        """Delete the models that later rounds replace, kept by a run that ended in this round or before."""
        for client, last in self.points.last.items() if self.folder.exists() else ():
            folder = self.folder / client_folder(client)
            points = ["after_agg", *(["after_fit"] if last > round else [])]
            for path in (path for point in points for path in folder.glob(f"{point}*")):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in (GLOBAL, SHARED):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    @cached_property
    def _private(self) -> set[str]:
        """The names of tensors with entries that not all clients share."""
        layout, method = self.parts.context.layout, self.parts.method
        kinds = (
            (layout.params, method.shared_params.mask),
            (layout.buffers, method.shared_buffers.mask),
            (layout.counters, method.shared_counters.mask),
        )
        return {slot.name for slots, mask in kinds for slot in slots if not mask[slot.place].all()}

    @cached_property
    def _medians(self) -> np.ndarray | None:
        return medians_of(self.parts.run.dataset, self.partition)

    def _about(self, parts: RunParts, client: int | None) -> dict[str, Any]:
        """The content of a client's model.json, or of the server's."""
        if parts.model not in self._known:
            self._known[parts.model] = about_model(parts.run.with_model(parts.model), parts.learner)
        about = self._known[parts.model]
        if client is None or self._medians is None:
            return about
        return about | {"columns": raw_columns(parts.run.dataset, self._medians[client])}

    def _write(
        self,
        parts: RunParts,
        client: int | None,
        point: str,
        tensors: dict[str, Tensor],
        name: str = GLOBAL,
        predicts: bool = True,
    ) -> Iterator[str]:
        """Write a client's model, or the server's of this name; yields why no script is written."""
        folder = self.folder / (name if client is None else client_folder(client))
        flat, script = parts.learner.flat, None
        about = with_buffers(self._about(parts, client), flat, tensors)
        if not (folder / ABOUT).exists() or "buffers" in about:  # of which the other point may have none
            folder.mkdir(parents=True, exist_ok=True)
            base = base_file(parts.run.config, parts.model)
            if flat.frozen and not (self.folder / base).exists():
                whole = flat.state_dict(flat.initial()) or {}
                frozen = {key: tensor for key, tensor in whole.items() if key in flat.frozen}
                write_atomically(self.folder / base, encode_state_dict(frozen))
            if predicts and "no_script" not in about:
                script = from_run(about, base if flat.frozen else None)
            write_beside(folder, about, script)
        write_atomically(folder / f"{point}.safetensors", encode_state_dict(tensors))
        if flat.frozen and predicts:
            write_adapters(folder, f"{point}-adapter", flat.module, tensors)
        if predicts and "no_script" in about:
            remedy = INTO_FORWARD if transfer_hooks(flat.module) else OTHER_WAYS
            yield f"save_models: no predict.py is written, because {about['no_script']}: {remedy}"
