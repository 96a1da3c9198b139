"""FedCAC's critical parameters: which they are at a client, and how much those of two clients overlap."""

import numpy as np
import torch
from torch import Tensor

from fedbench.aggregation.ranks import largest


def sensitivity(received: Tensor, trained: Tensor) -> Tensor:
    """|(trained - received) * trained| `[N]`: how much the loss would change without an element (eq. 5)."""
    return trained.sub(received).mul_(trained).abs_()


def above_threshold(scores: Tensor, count: int) -> Tensor:
    """The authors' code: all that reach the count-th largest score; a score of (nearly) 0 only if nothing moved."""
    if not count:
        return torch.zeros_like(scores, dtype=torch.bool)
    least = scores[largest(scores, count)].min()
    moved = scores[scores > 1e-20]
    if least <= 1e-10 and len(moved):
        least = moved.min()
    return scores >= least


def overlaps(common: Tensor, size: int, kind: str) -> Tensor:
    """O `[n, n]`, float64, of masks of `size` elements with `common` ones (`mask_overlaps`)."""
    ones = common.diagonal().to(torch.float64)
    distance = ones[:, None] + ones - 2 * common
    if kind == "literal":
        return distance / (2 * size)
    if kind == "all":
        return 1 - distance / (2 * size)
    return torch.where(ones[:, None] > 0, 1 - distance / (2 * ones[:, None]), 0.0)


def threshold(overlap: Tensor, progress: float) -> float:
    """The bar that rises from the average overlap of two clients to the largest as `progress` goes to 1 (eq. 7)."""
    # NumPy, because the order of a torch sum depends on the number of threads.
    pairs = overlap.numpy()[~np.eye(len(overlap), dtype=bool)]
    average = float(pairs.mean())
    return average + progress * (float(pairs.max()) - average)


def common_share(counts: np.ndarray, clients: int) -> float:
    """How likely a critical element of one client is critical for another one; counts: clients per element."""
    counts = counts.astype(np.float64)
    total = counts.sum()
    return float((counts * (counts - 1)).sum() / (total * (clients - 1))) if total else float("nan")
