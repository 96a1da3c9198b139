"""Noise on uploaded labels and numbers, and its privacy budget.

Neighbouring data sets differ in one training image. The budget of many uploads is accounted by Rényi divergences of
both kinds of noise (Mironov, CSF 2017, propositions 1, 5 and 7) on the usual grid of orders, converted to an epsilon
by proposition 12 of Canonne, Kamath and Steinke (NeurIPS 2020): valid for every epsilon, and far below the sum of the
epsilons for many uploads.
"""

from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ORDERS = np.array([1 + i / 10 for i in range(1, 100)] + [*range(11, 64), 128, 256, 512, 1024], dtype=np.float64)


def keep_probability(epsilon: float, classes: int) -> float:
    """Probability that k-ary randomised response keeps a label: e^epsilon / (e^epsilon + C - 1)."""
    return 1 / (1 + (classes - 1) * exp(-epsilon))


def randomised_response(labels: Tensor, classes: int, epsilon: float, stream: torch.Generator) -> Tensor:
    """Keeps every label or replaces it by a uniformly random other one."""
    keep = torch.rand(len(labels), dtype=torch.float64, generator=stream) < keep_probability(epsilon, classes)
    others = (labels + torch.randint(1, classes, (len(labels),), generator=stream)) % classes
    return torch.where(keep, labels, others)


def flip_probability(epsilon: float) -> float:
    """Flip probability of one bit: 1 / (1 + e^epsilon)."""
    return 1 / (1 + exp(epsilon)) if epsilon < 700 else 0.0


def flip_bits(bits: Tensor, probability: float, stream: torch.Generator) -> Tensor:
    """Flips every bit independently."""
    return bits ^ (torch.rand(bits.shape, dtype=torch.float64, generator=stream) < probability)


def gaussian_epsilon(sensitivity: float, images: int, sigma: float, delta: float) -> float:
    """Epsilon of Gaussian noise on one number per image, each of this `sensitivity`; proved up to epsilon 1."""
    return sensitivity * sqrt(images) / sigma * sqrt(2 * log(1.25 / delta))


def response_divergence(epsilon: float, classes: int) -> np.ndarray:
    """Rényi divergences, one per order, of one label under randomised response; a flipped bit has two classes."""
    other = -epsilon - np.log1p((classes - 1) * exp(-epsilon))  # log of the probability of one other label
    terms = np.exp((1 - 2 * ORDERS) * epsilon) + (classes - 2) * np.exp(-ORDERS * epsilon)
    return (other + ORDERS * epsilon + np.log1p(terms)) / (ORDERS - 1)


def gaussian_divergence(sensitivity: float, images: int, sigma: float) -> np.ndarray:
    """The same for Gaussian noise on one number per image."""
    return ORDERS * (sensitivity**2 * images / (2 * sigma**2))


def epsilon_at(divergence: np.ndarray, delta: float) -> float:
    """Least epsilon with this delta for these Rényi divergences (summed over all uploads)."""
    if not divergence.all():
        return 0.0
    epsilons = divergence + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    # A total variation distance below delta needs no epsilon at all.
    epsilons[-np.expm1(-divergence) < delta**2] = 0
    return float(max(0.0, epsilons.min(initial=inf)))


@dataclass(frozen=True)
class LabelNoise:
    """Noise on an upload's labels of public images: none, randomised response (krr), or flipped bits (xor).

    epsilon: of one label (krr), or of all labels of an upload (xor); changed: labels (krr) or bits (xor) of an upload
    that one training image can change.
    """

    kind: str
    classes: int
    epsilon: float
    changed: int

    def noisy(self, labels: Tensor, stream: torch.Generator) -> Tensor:
        """The labels `[U]` as sent; with xor one-hot rows, bool `[U, C]`, with flipped bits."""
        if self.kind == "krr":
            return randomised_response(labels, self.classes, self.epsilon, stream)
        if self.kind == "xor":
            probability = flip_probability(self.epsilon / self.changed)
            return flip_bits(F.one_hot(labels, self.classes).bool(), probability, stream)
        return labels

    @property
    def budget(self) -> float:
        """Epsilon that one upload spends; 0 without noise, where nothing is promised."""
        return self.epsilon * self.changed if self.kind == "krr" else self.epsilon

    @property
    def divergence(self) -> np.ndarray:
        """Rényi divergences of one upload, one per order; 0 without noise."""
        if self.kind == "krr":
            return self.changed * response_divergence(self.epsilon, self.classes)
        if self.kind == "xor":
            return self.changed * response_divergence(self.epsilon / self.changed, 2)
        return 0 * ORDERS


@dataclass(frozen=True)
class NumberNoise:
    """Gaussian noise on an upload's number per public image; sigma 0: none.

    most: largest change of one number by one training image; delta: of the budgets.
    """

    sigma: float
    most: float
    images: int
    delta: float

    @property
    def budget(self) -> float:
        """Epsilon that one upload spends; 0 without noise, where nothing is promised."""
        return gaussian_epsilon(self.most, self.images, self.sigma, self.delta) if self.sigma else 0.0

    @property
    def divergence(self) -> np.ndarray:
        """Rényi divergences of one upload, one per order; 0 without noise."""
        return gaussian_divergence(self.most, self.images, self.sigma) if self.sigma else 0 * ORDERS
