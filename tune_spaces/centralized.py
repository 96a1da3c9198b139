"""Training on the pooled data: a baseline without a paper; a round has as many epochs as a client's, so more steps."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "train.momentum": [0.0, 0.9],
}
PAPER: dict[str, list[Any]] = {}
