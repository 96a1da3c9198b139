"""FedDBE: kappa 50 with mu 1 for a small network, 1 with 0.1 for ResNet-18; narrow features want a smaller kappa."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.kappa": [1.0, 10.0, 50.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.kappa": [50.0],
    "method.mu": [1.0],
    "train.lr": [0.005],
    "train.momentum": [0.0],
    "train.batch_size": [10],
}
