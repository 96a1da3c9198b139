"""FedFomo: how many models a client gets; the authors send 4 or 9 of 15 clients."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.models": [3, 5],
    "method.baseline": ["start", "trained"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.models": [4, 9],
    "method.epsilon": [0.3],
    "train.lr": [0.1],
    "train.momentum": [0.0],
    "train.batch_size": [50],
}
