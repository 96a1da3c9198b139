"""FedALA's adaptive local aggregation: weights that say how far from its own numbers a client moves to others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbench.module.layout import Layout, Slot
from fedbench.module.weights import Weights

Look = Callable[[Tensor, Any], tuple[Tensor, Tensor]]


@dataclass(eq=False)
class Mixed(Weights):
    """Where a client starts, the weights `[N_p]` that it learned for it, and the passes over its images."""

    ratios: Tensor
    passes: int


def mixed(own: Tensor, received: Tensor, ratios: Tensor) -> Tensor:
    """From `own` towards `received` `[n]` by the weights `[n]` in [0, 1]."""
    return own + (received - own) * ratios


def learned(
    look: Look,
    batches: Sequence[Any],
    own: Tensor,
    received: Tensor,
    ratios: Tensor,
    *,
    eta: float,
    most: int,
    window: int,
    threshold: float,
) -> tuple[Tensor, int]:
    """The weights `[n]` that the batches teach, and the passes over them, at most `most` (Algorithm 1).

    look: the loss `[]` of a batch at a mixture `[n]`, and its gradient `[n]`; own, received, ratios: see `mixed`; eta:
    learning rate; window, threshold: see `settled`, of the loss of each pass's last batch.
    """
    losses: list[float] = []
    while len(losses) < most and not settled(losses, window, threshold):
        loss = torch.zeros(())
        for batch in batches:
            loss, gradient = look(mixed(own, received, ratios), batch)
            ratios = (ratios - eta * gradient * (received - own)).clamp_(0, 1)
        losses.append(float(loss))
    return ratios, len(losses)


def settled(losses: Sequence[float], window: int, threshold: float) -> bool:
    """Whether there are more losses than fill the window, and those in it, the last ones, hardly vary."""
    if len(losses) <= window:
        return False
    return float(torch.tensor(losses[-window:], dtype=torch.float64).std(correction=0)) < threshold


def layer_names(layout: Layout, order: Sequence[str]) -> list[str]:
    """The modules that own parameters, as a forward pass enters them; those of the declared classifier last."""
    heads = {owner(slot): slot.head for slot in layout.params}
    return sorted((name for name in order if name in heads), key=heads.__getitem__)


def owner(slot: Slot) -> str:
    """Dotted name of the module that a parameter belongs to."""
    return slot.name.rpartition(".")[0]
