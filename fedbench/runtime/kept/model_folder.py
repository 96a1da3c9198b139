"""Files beside a model's weights, for whoever predicts by them elsewhere: model.json and adapters."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.data.dataset import Dataset
from fedbench.data.fields import Fields, Leaf
from fedbench.data.imputation import means_of
from fedbench.engine.learner import Learner
from fedbench.errors import ConfigError
from fedbench.models.network import Network
from fedbench.models.recipe import calls_after, make_recipe
from fedbench.module.flat import FlatModule
from fedbench.module.hooks import TRANSFER, overrides
from fedbench.module.inputs import call_form
from fedbench.results.files import write_atomically, write_json_atomically
from fedbench.runtime.build import sample_shapes
from fedbench.runtime.resolved import ResolvedRun

ABOUT, SCRIPT = "model.json", "predict.py"
OTHER_WAYS = "fedbench.load_model gives the model, and `fedbench export --format torch.export` writes a program"
"""What to do where there is no script."""
INTO_FORWARD = "put what they do into forward, or call them before the model that fedbench.load_model gives"
"""What to do where a model has transfer hooks."""
NESTED = "its samples are nested"
"""Why there is no script for some data: a file of arrays has no structure."""


def about_model(run: ResolvedRun, learner: Learner) -> dict[str, Any]:
    """The content of model.json: the inputs and outputs of a model, and how it is built.

    The first keys are those of `Dataset.inputs`. dtype: of samples. columns: of a table (`raw_columns`). task: of the
    outputs. double: whether it computes in double precision. plain: whether forward returns the
    outputs alone. call: how it takes samples of several arrays. imports, build, calls: lines of Python that make the
    module; no_script: why there are none. `with_buffers` adds buffers.
    """
    config, dataset = run.config, run.dataset
    about = {**dataset.inputs(), "dtype": str(dataset.samples.dtype), "task": run.task.name}
    if dataset.table:
        about["columns"] = raw_columns(dataset)
    about |= {"double": config.train.precision == "64-true", "plain": isinstance(learner.module, Network)}
    try:
        if reason := transfer_hooks(learner.module):
            raise ConfigError(reason)
        if learner.flat.added:
            raise ConfigError(f"{config.method.name} adds layers to it")
        if is_nested(dataset.fields):
            raise ConfigError(NESTED)
        if dataset.fields and dataset.fields.sample is not None:
            about["call"] = sample_call_form(learner.module, dataset.fields)
        recipe = make_recipe(config.model.name, sample_shapes(dataset), dataset.outputs, config.model.options)
    except ConfigError as error:
        return about | {"no_script": str(error)}
    return about | {"imports": [*recipe.imports], "build": recipe.build, "calls": [*calls_after(learner.module)]}


def transfer_hooks(module: LightningModule) -> str:
    """Why forward alone does not predict as the run does, if a module changes samples before it; else empty."""
    names = ", ".join(hook for hook in TRANSFER if overrides(module, hook))
    return names and f"model {type(module).__name__} has transfer hooks ({names}), which a run calls before forward"


def with_buffers(about: Mapping[str, Any], flat: FlatModule, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The content of model.json beside these tensors, with `buffers` if PyTorch leaves some out of state dicts."""
    names = flat.unsaved
    return {**about, "buffers": names} if tensors.keys() & {*names} else {**about}


def raw_columns(dataset: Dataset, medians: np.ndarray | None = None) -> list[dict[str, Any]]:
    """The columns of a table, with what fills those whose numbers may be missing.

    medians: of a client, float32 [columns]; without them the means, which newcomers without samples take too.
    """
    fills, void = means_of(dataset) if medians is None else medians, {*dataset.void}
    columns, place = list[dict[str, Any]](), 0
    for column in dataset.table:
        fill = {"fill": float(fills[place])} if place in void else {}
        columns.append(column.as_json() | fill)
        place += len(column.features)
    return columns


def sample_call_form(module: nn.Module, fields: Fields) -> str:
    """How forward takes a sample of several arrays (`call_form`). Raises ConfigError if it does not."""
    tree = fields.sample
    assert isinstance(tree, dict | tuple)
    return call_form(type(module).forward, tuple(tree) if isinstance(tree, dict) else len(tree))


def is_nested(fields: Fields | None) -> bool:
    """Whether the arrays of a sample stand in dicts or tuples of their own."""
    tree = fields.sample if fields else None
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple) else ()
    return not all(isinstance(part, Leaf) for part in parts)


def write_beside(folder: Path, about: Mapping[str, Any], script: str | None) -> None:
    """Write predict.py, if there is one, and model.json, which ends the folder."""
    if script is not None:
        write_atomically(folder / SCRIPT, script)
    write_json_atomically(folder / ABOUT, about)


def write_adapters(folder: Path, name: str, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Write the adapters of `peft` in a module as peft does, into the subfolder `name`, one each if there are several.

    tensors: of the module's state dict, the adapters' among them.
    """
    adapters = list(_peft_modules(module))
    for where, inner in adapters:
        part = {key.removeprefix(f"{where}."): value for key, value in tensors.items() if key.startswith(f"{where}.")}
        target = folder / (name if len(adapters) == 1 else f"{name}-{where}")
        inner.save_pretrained(str(target), state_dict=part, save_embedding_layers=False)
        for path in target.iterdir():
            path.chmod(0o644)  # as all results: safetensors gives 0600


def _peft_modules(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The models with adapters in a module, by dotted name."""
    peft = sys.modules.get("peft")  # imported by whoever has such a module
    if peft is not None:
        yield from (
            (name, inner) for name, inner in module.named_modules() if name and isinstance(inner, peft.PeftModel)
        )
