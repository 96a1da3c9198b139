"""Gradients of penalties on the distance of a model's only moving part from a reference (FedDPA)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.fit import Step
from fedbench.engine.optimizers import LITTLE
from fedbench.module.layout import Slot
from fedbench.module.masks import choose, mask_indices


def pull_to(
    reference: Tensor, start: Tensor, part: Tensor, slots: Sequence[Slot], form: str, weight: float, goal: float
) -> Step:
    """Steps that keep a part of a model at the distance `goal` from the reference.

    reference: `[N]`; start: `[N]`, of the fit; part: bool `[N]`, on the CPU; form: norm, squared or layer_norm.
    """
    if form == "layer_norm":
        room = torch.empty_like(reference)
        return Step(layer_norm_pull, anchor=reference, room=room, slots=slots, weight=weight, goal=goal)
    (whole, few), own = PULLS[form], mask_indices(part)
    if len(own) <= LITTLE * len(part):  # stepped separately, so pulled separately
        own = own.to(reference.device)
        anchor = reference[own]
        return Step(few, anchor=anchor, room=torch.empty_like(anchor), part=own, weight=weight, goal=goal)
    # The other entries stay, so the distance of the part is that of the whole.
    anchor = choose(part.to(reference.device), reference, start)
    return Step(whole, anchor=anchor, room=torch.empty_like(anchor), weight=weight, goal=goal)


def norm_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Adds the gradient of weight / 2 * |distance - goal|, distance to the anchor."""
    offset, distance = offset_of(w, s.anchor, s.room)
    g.addcmul_(offset, norm_slope(distance, s.goal, s.weight))


def squared_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Adds the gradient of weight / 2 * (distance - goal)^2."""
    offset, distance = offset_of(w, s.anchor, s.room)
    g.addcmul_(offset, squared_slope(distance, s.goal, s.weight))


def norm_pull_of_part(g: Tensor, w: Tensor, s: Any) -> None:
    """`norm_pull` at the entries `s.part` `[n]`, with an anchor for these only."""
    offset, distance = offset_of(w.gather(-1, s.part), s.anchor, s.room)
    g.scatter_add_(-1, s.part, offset.mul_(norm_slope(distance, s.goal, s.weight)))


def squared_pull_of_part(g: Tensor, w: Tensor, s: Any) -> None:
    """`squared_pull` at the entries `s.part` `[n]`, with an anchor for these only."""
    offset, distance = offset_of(w.gather(-1, s.part), s.anchor, s.room)
    g.scatter_add_(-1, s.part, offset.mul_(squared_slope(distance, s.goal, s.weight)))


PULLS = {"norm": (norm_pull, norm_pull_of_part), "squared": (squared_pull, squared_pull_of_part)}


def norm_slope(distance: Tensor, goal: Tensor, weight: Tensor) -> Tensor:
    return (distance - goal).sign_().mul_(weight / 2).div_(above_zero(distance))


def squared_slope(distance: Tensor, goal: Tensor, weight: Tensor) -> Tensor:
    return (distance - goal).mul_(weight).div_(above_zero(distance))


def offset_of(w: Tensor, anchor: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
    """The offset from the anchor to `w`, and its norm."""
    offset = torch.sub(w, anchor, out=room)
    return offset, torch.linalg.vector_norm(offset, dim=-1, keepdim=True)  # `norm` adds a third to it


def above_zero(distance: Tensor) -> Tensor:
    """The divisor: an offset of 0 gives no pull, and one whose float32 norm is 0 hardly any."""
    return distance.clamp(min=1e-20)


def layer_norm_pull(g: Tensor, w: Tensor, s: Any) -> None:
    """Adds the gradient of weight / 2 * |T - goal|, T the sum of all tensors' distances; s.slots: of the tensors."""
    offset, total = torch.sub(w, s.anchor, out=s.room), torch.zeros_like(w[..., :1])
    for slot in s.slots:
        tensor = offset[..., slot.place]
        distance = torch.linalg.vector_norm(tensor, dim=-1, keepdim=True)
        tensor.div_(above_zero(distance))
        total.add_(distance)
    g.add_(offset.mul_((total - s.goal).sign_().mul_(s.weight / 2)))
