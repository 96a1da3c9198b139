"""Copies of a model inside the model: running averages of its weights, teachers, target networks."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel

from fedbench.models.compiled import unwrapped_name

Parameters = Mapping[str, nn.Parameter]


def copies_in(module: nn.Module) -> dict[str, str | None]:
    """Dotted names of copies and their originals ('': the module itself), None for originals outside the module.

    Copies are what AveragedModel averages, and frozen submodules that start with the numbers of a trainable one. Names
    do not include torch.compile's wrappers.
    """
    copies: dict[str, str | None] = {}
    for name, part in module.named_modules():
        if not name or any(is_under(name, copy) for copy in copies) or _is_kept_by_peft(module, name):
            continue
        if isinstance(part, AveragedModel):
            same = _original(module, name, part.module, _equal)
            copies[f"{name}.module"] = _original(module, name, part.module, _alike) if same is None else same
        elif _is_frozen(part) and (original := _original(module, name, part, _equal)) is not None:
            copies[name] = original
    return {
        unwrapped_name(copy): original if original is None else unwrapped_name(original)
        for copy, original in copies.items()
    }


def is_under(name: str, prefix: str) -> bool:
    """Whether a dotted name is that of a submodule or tensor, or is inside it."""
    return name == prefix or name.startswith(prefix + ".")


def named_tensors(module: nn.Module, remove_duplicate: bool = True) -> list[tuple[str, Tensor]]:
    """Parameters, then buffers. remove_duplicate: a tied tensor comes once, under its first name."""
    return [*module.named_parameters("", True, remove_duplicate), *module.named_buffers("", True, remove_duplicate)]


def with_originals(module: nn.Module, copies: Mapping[str, str | None]) -> list[tuple[Tensor, Tensor]]:
    """Tensors of copies and their originals."""
    pairs = []
    for copy, original in copies.items():
        if original is not None:
            own, others = (dict(named_tensors(module.get_submodule(name))) for name in (copy, original))
            pairs += [(tensor, others[name]) for name, tensor in own.items() if name in others]
    return pairs


def _original(
    module: nn.Module, name: str, part: nn.Module, fits: Callable[[Parameters, Parameters], bool]
) -> str | None:
    """The first submodule of the same type outside of `name` whose parameters match the part's."""
    own = dict(part.named_parameters())
    others = ((n, m) for n, m in module.named_modules() if type(m) is type(part) and not is_under(n, name))
    return next((other for other, candidate in others if fits(own, dict(candidate.named_parameters()))), None)


def _alike(own: Parameters, others: Parameters) -> bool:
    """Whether all parameters have a trainable counterpart of the same shape and type."""
    if not own or not own.keys() <= others.keys() or any(map(is_lazy, own.values())):
        return False
    both = [(p, others[name]) for name, p in own.items()]
    return all(other.requires_grad and (other.shape, other.dtype) == (p.shape, p.dtype) for p, other in both)


def _is_kept_by_peft(module: nn.Module, name: str) -> bool:
    """Whether peft keeps this part as it was, beside a copy that it trains: it never changes."""
    path, _, own = name.rpartition(".")
    return own == "original_module" and type(module.get_submodule(path)).__name__ == "ModulesToSaveWrapper"


def _is_frozen(part: nn.Module) -> bool:
    return not any(p.requires_grad for p in part.parameters())


def _equal(own: Parameters, others: Parameters) -> bool:
    """Whether they are alike and have the same numbers, which are not the usual initial ones of a layer type."""
    return (
        _alike(own, others)
        and all(torch.equal(p, others[name]) for name, p in own.items())
        and any(p.numel() and bool((p != p.flatten()[0]).any()) for p in own.values())
    )
