"""FedEM: three components in all experiments of the paper."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.components": [2, 3],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.components": [3],
    "train.lr": [0.03],
    "train.batch_size": [128],
    "train.momentum": [0.9],
}
