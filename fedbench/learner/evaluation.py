"""Class scores and what they are worth."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Score:
    """Accuracy (share of correct images, or mean over batches), mean cross-entropy, number of images."""

    accuracy: float
    loss: float
    count: int


def score(predictions: Iterable[tuple[Tensor, Tensor]], dtype: torch.dtype, by_batches: bool) -> Score:
    """The score of batches of (class scores [b, C], labels [b]); losses are summed in float64."""
    hits, losses, sizes = [], [], []
    for logits, labels in predictions:
        logits = logits.to(dtype)
        hits.append((logits.argmax(1) == labels).sum())
        losses.append(F.cross_entropy(logits, labels, reduction="none").sum(dtype=torch.float64))
        sizes.append(len(labels))
    correct, count = torch.stack(hits).tolist(), sum(sizes)
    shares = [hit / size for hit, size in zip(correct, sizes, strict=True)]
    accuracy = sum(shares) / len(shares) if by_batches else sum(correct) / count
    return Score(accuracy, float(torch.stack(losses).sum()) / count, count)
