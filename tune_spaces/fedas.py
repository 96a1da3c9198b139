"""FedAS: the alignment's epoch, rate and batches are constants of the authors' code."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.align_lr": [0.01, 0.1],
    "method.weighting": ["fisher", "samples"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.align_lr": [0.01],
    "train.epochs": [5],
    "train.momentum": [0.0],
    "train.batch_size": [16],
}
