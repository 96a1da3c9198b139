"""CFL: the thresholds are norms of updates, which depend on model, rate and epochs; a run traces them."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.eps1": [0.1, 0.4],
    "method.eps2": [0.6, 1.6],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.eps1": [0.4],
    "method.eps2": [1.6],
    "train.lr": [0.1],
    "train.momentum": [0.9],
}
