"""The order in which a module's layers run."""

from typing import Any

from torch import Tensor, nn

from fedbench.models.compiled import without_compiler


def layer_order(module: nn.Module, x: Tensor) -> list[str]:
    """Dotted names of a module and all submodules, in the order in which `module(x)` first enters them.

    A submodule that is not entered, because its parent uses its parameters directly, follows its parent.
    """
    names = {child: name for name, child in module.named_modules()}
    places: dict[str, int] = {}

    def enter(child: nn.Module, inputs: Any) -> None:
        places.setdefault(names[child], len(places))

    handles = [child.register_forward_pre_hook(enter) for child in names]
    try:
        with without_compiler():
            module(x)
    finally:
        for handle in handles:
            handle.remove()
    return sorted(names.values(), key=lambda name: _place_of(name, places))


def _place_of(name: str, places: dict[str, int]) -> int:
    """The position of a module, or of the nearest enclosing one that has a position."""
    while name not in places:
        name = name.rpartition(".")[0]
    return places[name]
