"""Parts of a module that torch.compile has wrapped: they have the names and places that they have without it."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

INNER = "_orig_mod"
"""The name that a wrapper of torch.compile has for what is inside."""


def unwrapped_name(name: str) -> str:
    """A dotted name without the wrappers on its way."""
    return ".".join(part for part in name.split(".") if part != INNER)


def unwrap(module: nn.Module) -> None:
    """Compile in place, as `Module.compile` does, what torch.compile has wrapped inside a module."""
    for parent in [part for part in module.modules() if not _wraps(part)]:
        for name, child in parent._modules.items():
            if child is not None and _wraps(child):
                parent._modules[name] = _compiled_in_place(child)


def _wraps(module: nn.Module) -> bool:
    return INNER in module._modules


def _compiled_in_place(wrapper: nn.Module) -> nn.Module:
    inner = wrapper._modules[INNER]
    assert inner is not None
    inner._compiled_call_impl = wrapper.dynamo_ctx(inner._call_impl)  # type: ignore[operator]
    vars(inner)[INNER] = inner  # for user code that looks through the wrapper
    return inner


def without_compiler() -> AbstractContextManager[object]:
    """Compiled code runs as it is written for a while: it does not call forward hooks that are new."""
    # Where nobody has asked for a compiler there is none: to say so takes 10 µs, which count in every step.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return (
        torch.compiler.set_stance("force_eager") if dynamo and any(dynamo.cached_backends.values()) else nullcontext()
    )
