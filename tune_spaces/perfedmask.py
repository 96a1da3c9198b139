"""PerFedMask: the code trains with sgd, momentum 0.9, decay 5e-4 and rate 0.1, cut by 10 at half and three quarters.

Capabilities belong to the devices and are not tuned; the rate of fine-tuning is the round's unless given.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.ft_epochs": [5, 10],
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
}
PAPER: dict[str, list[Any]] = {
    "method.ft_epochs": [5],
    "train.lr": [0.1],
    "train.momentum": [0.9],
    "train.weight_decay": [5e-4],
}
