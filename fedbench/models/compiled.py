"""Submodules wrapped by torch.compile: they keep their uncompiled names and places."""

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

INNER = "_orig_mod"
"""The name of the wrapped module in a wrapper of torch.compile."""


def unwrapped_name(name: str) -> str:
    """A dotted name without wrappers."""
    return ".".join(part for part in name.split(".") if part != INNER)


def unwrap(module: nn.Module) -> None:
    """Compiles submodules in place, as `Module.compile` does, instead of torch.compile's wrappers."""
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
    """Runs compiled code uncompiled for a while, because it would not call new forward hooks."""
    # If nobody has used the compiler there is nothing to disable; disabling would take 10 µs in every step.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return (
        torch.compiler.set_stance("force_eager") if dynamo and any(dynamo.cached_backends.values()) else nullcontext()
    )
