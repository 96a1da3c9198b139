"""FedAvg: the paper varies local epochs and batch size (table 2) of plain sgd and tunes the rate on a finer grid."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "train.epochs": [1, 5],
}
PAPER: dict[str, list[Any]] = {
    "train.epochs": [1, 5, 20],
    "train.batch_size": [10, 50, "full"],
    "train.momentum": [0.0],
    "train.weight_decay": [0.0],
}
