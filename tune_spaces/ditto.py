"""Ditto: the paper chooses lam per data set on validation data; PAPER holds the usual grid."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.1, 0.5, 1.0, 2.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {"method.lam": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]}
