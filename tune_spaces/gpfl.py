"""GPFL: lam 0.01 and mu 0.1 for a small network, 0.0001 and 0 for ResNet-18."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.0001, 0.01],
    "method.mu": [0.0, 0.1],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.lam": [0.01, 0.0001],
    "method.mu": [0.1, 0.0],
    "train.lr": [0.005],
    "train.momentum": [0.0],
    "train.batch_size": [10],
}
