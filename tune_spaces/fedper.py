"""FedPer: the paper fixes 4 local epochs on CIFAR and varies how many layers are private; the head alone is ours."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "train.epochs": [1, 5],
}
PAPER: dict[str, list[Any]] = {"train.epochs": [4]}
