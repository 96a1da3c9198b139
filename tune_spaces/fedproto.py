"""FedProto: the authors take lam 1, on CIFAR-10 0.1, at rate 0.01 with momentum 0.5."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.1, 1.0, 5.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.lam": [0.1, 1.0],
    "method.weighting": ["uniform"],
    "train.lr": [0.01],
    "train.momentum": [0.5],
    "train.weight_decay": [0.0],
}
