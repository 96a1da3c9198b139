"""FedBN has no hyperparameter of its own; the paper trains its digits at 0.01 with batches of 32, one epoch a round."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "train.epochs": [1, 5],
}
PAPER: dict[str, list[Any]] = {
    "train.lr": [0.01],
    "train.batch_size": [32],
    "train.epochs": [1],
}
