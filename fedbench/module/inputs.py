"""Batches as a user's module expects them: in the structure of the data set's items."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedbench.data.fields import Fields
from fedbench.errors import ConfigError

ATTRIBUTE = "_fedbench_inputs"

Form = Literal["keywords", "arguments", "whole"]


class Inputs:
    """Restores the structure of batches for one module. floats: the type of floats in packed samples.

    Methods call `net(x)` with one tensor; if samples are packed, this forward pre-hook calls forward with the arrays:
    by their names or one by one where forward takes as many arguments, else as one dict or tuple.
    """

    def __init__(self, fields: Fields, floats: torch.dtype) -> None:
        self.fields, self.floats = fields, floats

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 1 or not self.is_packed(args[0]):
            return None  # called by the module itself, with the arrays
        sample = self.fields.unpack(args[0], self.floats)
        form = call_form(type(module).forward, tuple(sample) if isinstance(sample, dict) else len(sample))
        if form == "keywords":
            return (), sample
        return (sample if form == "arguments" else (sample,)), {}

    def note(self, forward: Callable[..., Any]) -> str:
        """How forward gets a sample, if that is not by the names of its arrays."""
        sample = self.fields.sample
        if not isinstance(sample, dict | tuple):
            return ""
        form = call_form(forward, tuple(sample) if isinstance(sample, dict) else len(sample))
        return f" (forward gets them as one {type(sample).__name__})" if form == "whole" else ""

    def is_packed(self, x: Any) -> bool:
        """Whether a value is a batch of packed samples."""
        return isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] == self.fields.width

    def batch(self, batch: tuple[Tensor, Tensor]) -> Any:
        """The batch (samples, targets) in the structure of the items."""
        x, y = batch
        return self.fields.batch(x if self.fields.sample is None else self.fields.unpack(x, self.floats), y)


def attach(module: nn.Module, fields: Fields, floats: torch.dtype) -> None:
    """Lets a module see batches in this structure."""
    inputs = Inputs(fields, floats)
    setattr(module, ATTRIBUTE, inputs)
    if fields.sample is not None:
        module.register_forward_pre_hook(inputs, with_kwargs=True)


def batch_for(module: nn.Module, batch: Any) -> Any:
    """The batch as the module's training_step and hooks see it."""
    inputs = inputs_of(module)
    return batch if inputs is None else inputs.batch(batch)


def inputs_of(module: nn.Module) -> Inputs | None:
    """What restores the structure of a module's batches; None if they are (samples, targets)."""
    inputs: Inputs | None = getattr(module, ATTRIBUTE, None)
    return inputs


@cache
def call_form(forward: Callable[..., Any], parts: tuple[str, ...] | int) -> Form:
    """How forward takes a sample with these keys, or of so many arrays. Raises ConfigError."""
    accepted = list(inspect.signature(forward).parameters.values())[1:]
    places = [p for p in accepted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p.name for p in accepted if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if isinstance(parts, tuple):
        names = {p.name for p in accepted if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted)
        if {*required} <= {*parts} and (takes_any or {*parts} <= names):
            return "keywords"
    elif any(p.kind is p.VAR_POSITIONAL for p in accepted) or (
        len(places) > 1 and len(required) <= parts <= len(places)
    ):
        return "arguments"
    if len(required) <= 1 <= len(places):
        return "whole"
    what = f"the keys {', '.join(parts)}" if isinstance(parts, tuple) else f"{parts} parts"
    taken = ", ".join(p.name for p in accepted) or "nothing"
    raise ConfigError(
        f"{forward.__qualname__} takes {taken}, but a sample has {what}: name its arguments like these, or take "
        "the sample as one argument; data.sample chooses some of the keys"
    )
