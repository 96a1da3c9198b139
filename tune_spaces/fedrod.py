"""Fed-RoD: gamma 1 is the balanced softmax of the paper; 0 is FedAvg's loss."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.gamma": [0.5, 1.0],
    "method.personal_training": ["joint", "after"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {"method.gamma": [1.0], "method.personal_training": ["joint"]}
