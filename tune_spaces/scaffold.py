"""SCAFFOLD: the paper steps all the way to the mean and tunes the rate of the local steps, without momentum."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.control": ["II", "I"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {"method.control": ["II"], "method.global_lr": [1.0], "train.momentum": [0.0]}
