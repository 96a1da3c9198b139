"""FedBABU: the rate decides; the paper fine-tunes all for five epochs and trains at 0.1 with batches of 50."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.ft_epochs": [1, 5],
    "method.ft_scope": ["all", "body"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.ft_scope": ["all", "head", "body"],
    "method.ft_epochs": [5],
    "train.lr": [0.1],
    "train.momentum": [0.9],
    "train.batch_size": [50],
}
