"""How FedSelect's masks grow: which entries compete with each other, and which of them turn personal."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench.aggregation.ranks import floored_share, largest
from fedbench.module.layout import Layout

Scope = slice | Tensor


def scopes(layout: Layout, scope: str, mask_biases: bool) -> list[Scope]:
    """Places of the entries that compete with each other: a slice for each layer, or one mask `[N]` of all."""
    layers = [slot for slot in layout.params if mask_biases or slot.name.endswith("weight")]
    parts: list[Scope] = [slice(slot.start, slot.stop) for slot in layers]
    if scope == "layer":
        return parts
    everything = torch.zeros(layout.size, dtype=torch.bool)
    for part in parts:
        everything[part] = True
    return [everything]


def grown(mask: Tensor, change: Tensor, scopes: Sequence[Scope], rate: float, limit: float) -> Tensor:
    """The mask, bool `[N]`, and the entries of each scope that changed most (`change` `[N]`).

    rate: share of a scope's free entries that turn personal; limit: largest share of a scope that is personal then.
    """
    out = mask.clone()
    for scope in scopes:
        personal = mask[scope]
        free = int((~personal).sum())
        count = free - round((1 - rate) * free)
        room = floored_share(limit, len(personal)) - (len(personal) - free)
        out[scope] |= largest(change[scope], min(count, room), ~personal)
    return out
