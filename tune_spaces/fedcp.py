"""FedCP: lam 5 in the authors' run; on little data a smaller one."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.0, 1.0, 5.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.lam": [5.0],
    "train.lr": [0.005],
    "train.momentum": [0.0],
    "train.batch_size": [10],
}
