"""MOON: the paper chooses mu from four values, at temperature 0.5, in networks with a projection of 256."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.mu": [0.1, 1.0, 5.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.mu": [0.1, 1.0, 5.0, 10.0],
    "method.temperature": [0.5],
    "method.projection": [256],
    "train.lr": [0.01],
    "train.momentum": [0.9],
    "train.batch_size": [64],
}
