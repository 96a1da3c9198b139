"""FedDyn: the paper takes 0.1, 0.01 or 0.001 for alpha, by data set; more local work wants a smaller one."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.alpha": [0.01, 0.1, 1.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.alpha": [0.1, 0.01, 0.001],
    "train.lr": [0.1],
    "train.momentum": [0.0],
    "train.batch_size": [50],
}
