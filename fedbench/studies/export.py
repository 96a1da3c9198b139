"""Exports a kept model: its weights with a script, or a program that takes raw samples and needs no fedbench."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedbench.data.dataset import Dataset
from fedbench.data.split import Split, scale_and_shift
from fedbench.engine.learner import Learner
from fedbench.engine.losses import outputs_of
from fedbench.errors import ConfigError, first_line
from fedbench.models.state_dicts import encode_state_dict
from fedbench.results.files import write_atomically
from fedbench.runtime import predict_script
from fedbench.runtime.kept_models import GLOBAL, client_folder
from fedbench.runtime.model_folder import SCRIPT, about_model, form_of, write_adapters, write_beside
from fedbench.studies.load import kept_learner

FORMATS = {"safetensors": "model.safetensors", "onnx": "model.onnx", "torch.export": "model.pt2"}
"""The file of a model in each format."""
POINTS = ("after_agg", "after_fit")
ONNX = ("onnx", "onnxscript")
"""The packages by which torch writes ONNX."""
TRACED, CHECKED = 2, 32
"""Samples of which a program is made, and of which its outputs are compared."""


@dataclass(frozen=True)
class Exported:
    """folder: where it lies. script: whether it has a predict.py; else `missing` says why.

    difference: the largest one between the program's outputs and fedbench's, over `samples` samples; None if unknown.
    """

    folder: Path
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
) -> Exported:
    """Exports the model of a client, or the `"global"` one, that a run kept. Raises ConfigError.

    format: safetensors, a whole state dict beside a script that imports the model's class; torch.export or onnx, a
    program of raw samples `[n, ...]` with its normalisation inside. out: by default a folder in `folder`/exported.
    """
    folder = Path(folder)
    _check(format, point)
    run, learner = kept_learner(folder, client, seed, point)
    seed = run.config.seeds[0] if seed is None else seed
    name = GLOBAL if client == GLOBAL else client_folder(int(client))
    target = Path(out) if out else folder / "exported" / f"seed-{seed}-{name}-{point}-{format}"
    target.mkdir(parents=True, exist_ok=True)
    about, file = about_model(run, learner), target / FORMATS[format]
    if format == "safetensors":
        return _weights(target, file, about, learner)
    samples = min(CHECKED, len(run.dataset.targets))
    expected = learner.logits(learner.flat.weights(), _split(run.dataset, samples, learner.dtype))
    program = Program(learner, run.dataset)
    made = _traced(program, raw_samples(run.dataset, TRACED, learner.dtype))
    raw = raw_samples(run.dataset, samples, learner.dtype)
    write, script = (
        (_write_onnx, predict_script.from_onnx) if format == "onnx" else (_write_program, predict_script.from_program)
    )
    found = write(made, file, raw)
    write_beside(target, about, script(about, file.name))
    return Exported(target, file, "", None if found is None else float((found - expected).abs().max()), samples)


class Program(nn.Module):
    """A learner's model as a function of raw samples: an array `[n, ...]`, or a dict or tuple of arrays.

    It takes the tensors of the learner's module out of its vector, so the learner cannot be used any more.
    """

    def __init__(self, learner: Learner, dataset: Dataset) -> None:
        super().__init__()
        self.model = learner.module.eval()
        for parameter in self.model.parameters():
            parameter.data = parameter.data.clone()
            parameter.requires_grad_(False)
        fields = dataset.fields
        self.form = form_of(self.model, fields) if fields and fields.sample is not None else "whole"
        scale, shift = scale_and_shift(dataset, dtype=learner.dtype) or (None, None)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, samples: Any) -> Tensor:
        if self.scale is not None:
            samples = samples.to(self.scale.dtype) * self.scale + self.shift
        keywords, arguments = self.form == "keywords", self.form == "arguments"
        found = self.model(**samples) if keywords else self.model(*samples) if arguments else self.model(samples)
        return outputs_of(found)


def raw_samples(dataset: Dataset, count: int, floats: torch.dtype) -> Any:
    """The last samples as the data set has them: an array, or its arrays in their structure."""
    samples = torch.from_numpy(dataset.samples[-count:].copy())
    fields = dataset.fields
    return samples if fields is None or fields.sample is None else fields.unpack(samples, floats)


def _split(dataset: Dataset, count: int, dtype: torch.dtype) -> Split:
    """The same samples as fedbench evaluates them."""
    samples, targets = (torch.from_numpy(part[-count:].copy()) for part in (dataset.samples, dataset.targets))
    return Split(samples, torch.arange(count), targets, scale_and_shift(dataset), (0,), dtype=dtype)


def _weights(target: Path, file: Path, about: Mapping[str, Any], learner: Learner) -> Exported:
    tensors = learner.flat.state_dict(learner.flat.weights())
    assert tensors is not None
    write_atomically(file, encode_state_dict(tensors))
    if learner.flat.frozen:
        write_adapters(target, "adapter", learner.module, tensors)
    missing = about.get("no_script", "")
    (target / SCRIPT).unlink(missing_ok=True)
    write_beside(target, about, None if missing else predict_script.from_weights(about, file.name))
    return Exported(target, file, missing)


def _traced(program: Program, raw: Any) -> torch.export.ExportedProgram:
    """The program for any number of samples. Raises ConfigError if torch.export cannot make it."""
    shapes, batch = torch.export.ShapesCollection(), torch.export.Dim("batch")
    for leaf in tree_leaves(raw):
        shapes[leaf] = {0: batch}
    try:
        return torch.export.export(program, (raw,), dynamic_shapes=shapes)
    except Exception as error:
        name = type(program.model).__name__
        raise ConfigError(
            f"torch.export cannot turn model {name} into a program ({type(error).__name__}: {first_line(error)}); "
            "--format safetensors writes its weights"
        ) from error


def _write_program(made: torch.export.ExportedProgram, file: Path, raw: Any) -> Tensor:
    """Returns the outputs of the program in the file."""
    torch.export.save(made, file)
    return torch.export.load(file).module()(raw)


def _write_onnx(made: torch.export.ExportedProgram, file: Path, raw: Any) -> Tensor | None:
    """Returns the outputs of the program in the file; None without onnxruntime."""
    try:
        torch.onnx.export(made, (), file, external_data=False, verbose=False)
    except Exception as error:
        raise ConfigError(
            f"torch.onnx cannot write this model ({type(error).__name__}: {first_line(error)})"
        ) from error
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(file)
    feed = {given.name: leaf.numpy() for given, leaf in zip(session.get_inputs(), tree_leaves(raw), strict=True)}
    return torch.from_numpy(session.run(None, feed)[0])


def _check(format: str, point: str) -> None:
    for flag, value, legal in (("format", format, [*FORMATS]), ("point", point, POINTS)):
        if value not in legal:
            raise ConfigError(f"--{flag} {value}: must be {', '.join(legal[:-1])} or {legal[-1]}")
    missing = [name for name in ONNX if find_spec(name) is None] if format == "onnx" else []
    if missing:
        raise ConfigError(f"--format onnx needs {' and '.join(missing)}: pip install {' '.join(missing)}")
