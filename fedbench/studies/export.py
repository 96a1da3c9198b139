"""Exports a kept model: its weights with a script, or a program that takes raw samples and needs no fedbench."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedbench.config.tuning import POINTS
from fedbench.data.dataset import Dataset
from fedbench.data.imputation import means_of, medians_of
from fedbench.data.partitions import partition
from fedbench.data.split import Split, scale_and_shift
from fedbench.engine.learner import Learner
from fedbench.engine.losses import outputs_of
from fedbench.errors import ConfigError, first_line
from fedbench.installation import require
from fedbench.models.state_dicts import encode_state_dict
from fedbench.results.files import write_atomically
from fedbench.runtime.kept import predict_script
from fedbench.runtime.kept.model_folder import (
    INTO_FORWARD,
    NESTED,
    SCRIPT,
    about_model,
    is_nested,
    raw_columns,
    sample_call_form,
    transfer_hooks,
    with_buffers,
    write_adapters,
    write_beside,
)
from fedbench.runtime.kept.paths import GLOBAL, client_folder
from fedbench.runtime.resolved import ResolvedRun
from fedbench.studies.load import kept_learner

FORMATS = {"safetensors": "model.safetensors", "onnx": "model.onnx", "torch.export": "model.pt2"}
"""The file of a model in each format."""
SCRIPTS = {
    "safetensors": predict_script.from_weights,
    "onnx": predict_script.from_onnx,
    "torch.export": predict_script.from_program,
}
TRACED, CHECKED = 2, 32
"""Samples of which a program is made, and of which its outputs are compared."""


@dataclass(frozen=True)
class ExportedModel:
    """An exported model. missing: why there is no predict.py; empty if there is one.

    difference: the largest one between a program's outputs and fedbench's, over `samples` samples; None of weights.
    """

    file: Path
    missing: str = ""
    difference: float | None = None
    samples: int = 0


def export(
    folder: str | Path,
    client: int | str,
    format: str = "safetensors",
    point: str = "after_agg",
    seed: int | None = None,
    out: str | Path | None = None,
) -> ExportedModel:
    """Exports the model of a client, or the `"global"` one, that a run kept. Raises ConfigError.

    format: safetensors, a whole state dict beside a script that imports the model's class; torch.export or onnx, a
    program of raw samples `[n, ...]` with its normalisation inside. out: by default a folder in `folder`/exported.
    Models with transfer hooks are refused, and programs whose outputs are not fedbench's.
    """
    folder = Path(folder)
    _check(format, point)
    run, learner = kept_learner(folder, client, seed, point)
    if reason := transfer_hooks(learner.module):
        raise ConfigError(f"{reason}, and an exported model does not: {INTO_FORWARD}")
    seed = run.config.seeds[0] if seed is None else seed
    fills = _fills(run, client, seed)
    name = GLOBAL if client == GLOBAL else client_folder(int(client))
    target = Path(out) if out else folder / "exported" / f"seed-{seed}-{name}-{point}-{format}"
    target.mkdir(parents=True, exist_ok=True)
    about, file = about_model(run, learner), target / FORMATS[format]
    written: tuple[float | None, int] = None, 0
    if fills is not None:
        about["columns"] = raw_columns(run.dataset, fills)
    if format == "safetensors":
        about, missing = with_buffers(about, learner.flat, _write_weights(file, learner)), about.get("no_script", "")
    else:
        missing = NESTED if is_nested(run.dataset.fields) else ""
        written = _write_program(file, run.dataset, learner, fills)
    (target / SCRIPT).unlink(missing_ok=True)
    write_beside(target, about, None if missing else SCRIPTS[format](about, file.name))
    return ExportedModel(file, missing, *written)


class Program(nn.Module):
    """A learner's model as a function of raw samples: an array `[n, ...]`, or a dict or tuple of arrays.

    It takes the tensors of the learner's module out of its vector, so the learner cannot be used any more. fills: what
    stands for missing values, float32 [columns], if some are.
    """

    fills: Tensor | None

    def __init__(self, learner: Learner, dataset: Dataset, fills: np.ndarray | None = None) -> None:
        super().__init__()
        self.model = learner.module.eval()
        for parameter in self.model.parameters():
            parameter.data = parameter.data.clone()
            parameter.requires_grad_(False)
        fields = dataset.fields
        self.form = sample_call_form(self.model, fields) if fields and fields.sample is not None else "whole"
        scale, shift = scale_and_shift(dataset, dtype=learner.dtype) or (None, None)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.register_buffer("fills", None if fills is None else torch.from_numpy(fills.copy()))

    def forward(self, samples: Any) -> Tensor:
        if self.fills is not None:
            samples = torch.where(samples.isnan(), self.fills, samples)
        if self.scale is not None:
            samples = samples.to(self.scale.dtype) * self.scale + self.shift
        keywords, arguments = self.form == "keywords", self.form == "arguments"
        answer = self.model(**samples) if keywords else self.model(*samples) if arguments else self.model(samples)
        return outputs_of(answer)


def raw_samples(dataset: Dataset, count: int, floats: torch.dtype) -> Any:
    """The last samples as the data set has them: an array, or its arrays in their structure."""
    samples = torch.from_numpy(dataset.samples[-count:].copy())
    fields = dataset.fields
    return samples if fields is None or fields.sample is None else fields.unpack(samples, floats)


def _fills(run: ResolvedRun, client: int | str, seed: int) -> np.ndarray | None:
    """What stands for missing values at a client, or at one without samples; None if no value is missing."""
    dataset = run.dataset
    if client == GLOBAL:
        return means_of(dataset) if dataset.void else None
    medians = medians_of(dataset, partition(dataset, run.config, seed)) if dataset.void else None
    return None if medians is None else medians[int(client)]


def _split(dataset: Dataset, count: int, dtype: torch.dtype, fills: np.ndarray | None) -> Split:
    """The same samples as fedbench evaluates them."""
    samples, targets = (torch.from_numpy(part[-count:].copy()) for part in (dataset.samples, dataset.targets))
    factors = scale_and_shift(dataset, dtype=dtype)
    medians = None if fills is None else torch.from_numpy(fills[None].copy())
    owners = torch.zeros(count, dtype=torch.int64)
    return Split(samples, torch.arange(count), targets, factors, (0,), dtype=dtype, owners=owners, medians=medians)


def _write_weights(file: Path, learner: Learner) -> dict[str, Tensor]:
    """Writes the whole state dict and returns it."""
    tensors = learner.flat.state_dict(learner.flat.weights())
    assert tensors is not None  # it was kept as one
    write_atomically(file, encode_state_dict(tensors))
    if learner.flat.frozen:
        write_adapters(file.parent, "adapter", learner.module, tensors)
    return tensors


def _write_program(file: Path, dataset: Dataset, learner: Learner, fills: np.ndarray | None) -> tuple[float, int]:
    """Returns the largest difference of the written program's outputs from fedbench's, and over how many samples.

    Raises ConfigError, and writes no file, if that is more than rounding.
    """
    count = min(CHECKED, len(dataset.targets))
    expected = learner.logits(learner.flat.weights(), _split(dataset, count, learner.dtype, fills))
    made = _export_program(Program(learner, dataset, fills), raw_samples(dataset, TRACED, learner.dtype))
    raw = raw_samples(dataset, count, learner.dtype)
    with TemporaryDirectory(prefix=".", dir=file.parent) as folder:
        draft = Path(folder, file.name)
        outputs = _through_onnx(made, draft, raw) if file.suffix == ".onnx" else _through_torch(made, draft, raw)
        difference = checked_difference(outputs, expected, _coarsest_type(learner))
        draft.replace(file)
    return difference, count


def checked_difference(outputs: Tensor, expected: Tensor, dtype: torch.dtype) -> float:
    """The largest difference of a program's outputs from fedbench's.

    dtype: in which they are computed. Raises ConfigError if the difference is more than half of its digits explain.
    """
    same = (outputs == expected) | (outputs.isnan() & expected.isnan())
    difference = float(torch.where(same, 0, (outputs - expected).abs()).max())
    size = max(1.0, float(expected.abs().nan_to_num(0, 0, 0).max()))
    limit = size * torch.finfo(dtype).eps ** 0.5
    if not difference <= limit:  # NaN is more
        name = str(dtype).removeprefix("torch.")
        raise ConfigError(
            f"the program's outputs differ from fedbench's by {difference:.1e}, more than rounding of {name} does "
            f"({limit:.1e}), so it is not written: a program cannot have a forward that draws random numbers or "
            "depends on the values of its input; --format safetensors writes its weights"
        )
    return difference


def _coarsest_type(learner: Learner) -> torch.dtype:
    """The floating-point type with the fewest digits in which fedbench computes the outputs."""
    types = {tensor.dtype for tensor in learner.module.state_dict().values() if tensor.is_floating_point()}
    types |= {torch.bfloat16} if learner.flat.precision == "bf16-mixed" else set()
    return max({learner.dtype, *types}, key=lambda dtype: torch.finfo(dtype).eps)


def _export_program(program: Program, raw: Any) -> torch.export.ExportedProgram:
    """The program for any number of samples. Raises ConfigError if torch.export cannot make it."""
    shapes, batch = torch.export.ShapesCollection(), torch.export.Dim("batch")
    for leaf in tree_leaves(raw):
        shapes[leaf] = {0: batch}
    try:
        return torch.export.export(program, (raw,), dynamic_shapes=shapes)
    except Exception as error:
        raise ConfigError(
            f"torch.export cannot make a program of model {type(program.model).__name__} "
            f"({type(error).__name__}: {first_line(error)}); --format safetensors writes its weights"
        ) from error


def _through_torch(made: torch.export.ExportedProgram, file: Path, raw: Any) -> Tensor:
    """Writes the file and returns its outputs."""
    torch.export.save(made, file)
    outputs: Tensor = torch.export.load(file).module()(raw)
    return outputs


def _through_onnx(made: torch.export.ExportedProgram, file: Path, raw: Any) -> Tensor:
    """Writes the file and returns its outputs."""
    try:
        torch.onnx.export(made, (), file, external_data=False, verbose=False)
    except Exception as error:
        raise ConfigError(
            f"torch.onnx cannot write this model ({type(error).__name__}: {first_line(error)}); --format torch.export "
            "may"
        ) from error
    import onnxruntime

    session = onnxruntime.InferenceSession(file)
    feed = {given.name: leaf.numpy() for given, leaf in zip(session.get_inputs(), tree_leaves(raw), strict=True)}
    return torch.from_numpy(session.run(None, feed)[0])


def _check(format: str, point: str) -> None:
    for flag, value, legal in (("format", format, [*FORMATS]), ("point", point, POINTS)):
        if value not in legal:
            raise ConfigError(f"--{flag} {value}: must be {', '.join(legal[:-1])} or {legal[-1]}")
    if format == "onnx":
        require("onnx", "--format torch.export writes a program for torch alone")
