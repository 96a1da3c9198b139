"""How the ones of a mask lie over a model's tensors and layers."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedbench.module.layout import Slot


def behind(slots: Iterable[Slot], size: int) -> list[Slot]:
    """The same tensors in a vector that has so many numbers before them."""
    return [replace(slot, start=slot.start + size, stop=slot.stop + size) for slot in slots]


def by_tensor(name: str, slots: Iterable[Slot], ones: Tensor | np.ndarray, masks: int = 1) -> dict[str, float]:
    """`NAME/TENSOR`: the share of ones in every tensor. ones: of so many masks together `[N]`, bool or counted."""
    return {f"{name}/{s.name}": float(ones[s.start : s.stop].sum()) / (s.size * masks) for s in slots}


def mask_traces(slots: Iterable[Slot], mask: Tensor | None) -> dict[str, float]:
    """How many numbers are personal (fig. 5 and 10): in all, and by layer, whose tensors count together.

    `personal_count`, and the `personal_location` of all personal ones that lie in a layer (0 if there are none);
    `personal_share`: personal share of the model, or of a layer. No mask is an empty one.
    """
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    slots = list(slots)
    found = [0] * len(slots) if mask is None else torch.stack([mask[s.start : s.stop].sum() for s in slots]).tolist()
    for slot, count in zip(slots, found, strict=True):
        layer = slot.name.rpartition(".")[0] or slot.name
        counts[layer] = counts.get(layer, 0) + count
        sizes[layer] = sizes.get(layer, 0) + slot.size
    total = sum(counts.values())
    traces = {"personal_count": float(total), "personal_share": total / sum(sizes.values())}
    for layer, count in counts.items():
        traces[f"personal_count/{layer}"] = float(count)
        traces[f"personal_location/{layer}"] = count / total if total else 0.0
        traces[f"personal_share/{layer}"] = count / sizes[layer]
    return traces
