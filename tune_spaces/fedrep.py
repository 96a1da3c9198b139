"""FedRep: the paper gives the head ten epochs, the body one (CIFAR) or five, and trains at 0.01 with batches of ten."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.head_epochs": [5, 10],
    "method.body_epochs": [1, 5],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.head_epochs": [10],
    "method.body_epochs": [1, 5],
    "train.lr": [0.01],
    "train.batch_size": [10],
}
