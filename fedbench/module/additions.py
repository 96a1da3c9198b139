"""Modules that a method adds to a model, and that change what goes into the head and what comes out of it."""

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.errors import ConfigError
from fedbench.module.layout import Layout


class Addition(nn.Module):
    """A module between body and head. Its features, the body's outputs, are what it is called with.

    The hooks on the head are methods of this module, so that a copy of the model calls the copy of its addition.
    """

    def forward(self, features: Tensor) -> Tensor:
        """The head's input `[b, d]` from the features `[b, d]`."""
        return features

    def outputs(self, outputs: Tensor) -> Tensor:
        """The model's outputs `[b, C]` from those of the head."""
        return outputs

    def before(self, head: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self(given[0]), *given[1:])

    def after(self, head: nn.Module, given: tuple[Any, ...], outputs: Any) -> Any:
        return self.outputs(outputs)


def draw_linear(linear: nn.Linear, stream: torch.Generator) -> None:
    """Draws weight, then bias if there is one, as PyTorch does by default, but from a CPU stream."""
    for parameter in linear.parameters():
        drawn = torch.rand(parameter.shape, generator=stream, dtype=parameter.dtype)
        parameter.data = ((2 * drawn - 1) / sqrt(linear.in_features)).to(parameter.device)


def add_before_head(module: nn.Module, layout: Layout, name: str, addition: Addition) -> None:
    """Registers an addition as a submodule of this name and puts it before the model's head.

    Raises ConfigError if no head is declared or the name is taken.
    """
    layout.mask("head")
    add_beside(module, name, addition)
    head = module.get_submodule(layout.head_name or "")
    head.register_forward_pre_hook(addition.before)
    head.register_forward_hook(addition.after)


def head_of_width(module: nn.Module, layout: Layout, width: int) -> int:
    """Replaces the model's linear head by one with another input, drawn anew; returns the width that it had."""
    (weight, bias), name = layout.linear_head(), layout.head_name or ""
    classes, features = weight.shape
    module.set_submodule(name, nn.Linear(width, classes, bias=bias is not None))
    return features


def add_beside(module: nn.Module, name: str, addition: nn.Module) -> None:
    """Registers a module that the forward pass does not use. Raises ConfigError if the name is taken."""
    if hasattr(module, name):
        raise ConfigError(f"the method adds a part '{name}' to the model, which has one: rename that of the model")
    module.add_module(name, addition)
