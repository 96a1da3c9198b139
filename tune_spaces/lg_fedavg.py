"""LG-FedAvg: the authors train for one local epoch at rate 0.1 (CIFAR-10) or 0.05 (MNIST), without decay or a grid.

They start from a model of FedAvg; how many rounds make it is ours.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.pretrain_rounds": [0, 20],
    "train.lr": [0.01, 0.03, 0.1],
    "train.epochs": [1, 5],
}
PAPER: dict[str, list[Any]] = {
    "train.lr": [0.05, 0.1],
    "train.epochs": [1],
    "train.weight_decay": [0.0],
}
