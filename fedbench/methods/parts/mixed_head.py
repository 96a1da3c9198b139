"""A classifier whose weights are mixtures of endpoints: how a model gets it, where it is, and its loss."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks


class Mixture(nn.Module):
    """A weight as `sum_m a_m W_m`; `coordinates` holds a `[M]`, the endpoints W `[M, *shape]` are the parameter."""

    coordinates: Tensor

    def __init__(self, count: int, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("coordinates", torch.full((count,), 1 / count, dtype=like.dtype, device=like.device))

    def forward(self, endpoints: Tensor) -> Tensor:
        return (endpoints * self.coordinates.view(-1, *[1] * (endpoints.dim() - 1))).sum(0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight.expand(len(self.coordinates), *weight.shape).clone()


def mix_head(module: nn.Module, layout: Layout, count: int, init: str, seed: int) -> None:
    """Make `count` endpoints of every weight of the classifier; biases stay one.

    init: xavier draws the endpoints anew, jitter adds noise to the weight. Each endpoint has a stream of its own.
    """
    places = weights_of_head(module, layout)
    for owner, name in places:
        parametrize.register_parametrization(owner, name, Mixture(count, getattr(owner, name)))
    endpoints = [owner.get_parameter(f"parametrizations.{name}.original").data for owner, name in places]
    for number in range(count):
        stream = torch.Generator().manual_seed(seed + number)
        for target in endpoints:
            drawn = torch.empty(target.shape[1:], dtype=target.dtype)
            if init == "xavier":
                target[number] = nn.init.xavier_normal_(drawn, generator=stream)
            else:
                target[number] += 0.1 * drawn.normal_(generator=stream)


def weights_of_head(module: nn.Module, layout: Layout) -> list[tuple[nn.Module, str]]:
    """Owner and name of every trainable matrix of the classifier. Raises ConfigError where it cannot be mixed."""
    layout.mask("head")
    head = module.get_submodule(layout.head_name or "")
    found = [(m, n, p) for m in head.modules() for n, p in m.named_parameters(recurse=False)]
    matrices = [(m, n, p) for m, n, p in found if p.dim() > 1 and p.requires_grad]
    owners = Counter(id(p) for _, p in module.named_parameters(remove_duplicate=False))
    parametrized = any(parametrize.is_parametrized(part) for part in head.modules())
    if not matrices or parametrized or any(owners[id(p)] > 1 for _, _, p in matrices):
        raise ConfigError(
            f"floco mixes the weight of the classifier '{layout.head_name}': it must have one that is trainable, not "
            "shared with another layer and not parametrized; name another classifier with --model.head"
        )
    return [(owner, name) for owner, name, _ in matrices]


def mixture_masks(layout: Layout) -> Masks:
    """The endpoints among the parameters, and the coordinates among the buffers.

    No other parametrization of the classifier is there: `mix_head` refuses them.
    """
    slots = (*layout.params, *layout.buffers)
    return layout.under(slot.name for slot in slots if slot.head and ".parametrizations." in slot.name)


def mixed_loss(net: Any, batch: Any, s: Any) -> Tensor:
    """The task's loss at the next coordinates of `s.path` `[steps, M]`; s.step `[1]` counts."""
    place = s.path.index_select(0, s.step)[0]
    s.step.copy_((s.step + 1) % len(s.path))  # an optimiser may try several times in a step
    for module in net.modules():
        if isinstance(module, Mixture):
            module.coordinates.copy_(place)
    return task_loss(net, batch)
