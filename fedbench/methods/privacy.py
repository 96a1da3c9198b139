"""Noise on labels and on numbers that clients upload, and what it spends of a privacy budget."""

from math import exp, log, sqrt

import torch
from torch import Tensor


def keep_probability(epsilon: float, classes: int) -> float:
    """Of k-ary randomised response: e^epsilon / (e^epsilon + C - 1)."""
    return 1 / (1 + (classes - 1) * exp(-epsilon))


def randomised_response(labels: Tensor, classes: int, epsilon: float, stream: torch.Generator) -> Tensor:
    """Every label kept, or exchanged for one of the others, each as likely as the next."""
    keep = torch.rand(len(labels), dtype=torch.float64, generator=stream) < keep_probability(epsilon, classes)
    others = (labels + torch.randint(1, classes, (len(labels),), generator=stream)) % classes
    return torch.where(keep, labels, others)


def flip_probability(epsilon: float) -> float:
    """Of one bit with this budget: 1 / (1 + e^epsilon)."""
    return 1 / (1 + exp(epsilon)) if epsilon < 700 else 0.0


def flipped(bits: Tensor, probability: float, stream: torch.Generator) -> Tensor:
    """Every bit flipped independently."""
    return bits ^ (torch.rand(bits.shape, dtype=torch.float64, generator=stream) < probability)


def gaussian_epsilon(sensitivity: float, images: int, sigma: float, delta: float) -> float:
    """Budget of Gaussian noise on one number per image, each changing by at most `sensitivity`; a theorem up to 1."""
    return sensitivity * sqrt(images) / sigma * sqrt(2 * log(1.25 / delta))
