"""FedPAC: the paper fixes lambda 1, one epoch of the head and five of the body; its code has 0.1 as the head's rate.

The rate of the head is tuned because 0.1 is bold on wide features; the code trains bodies at 0.01 or 0.02.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.1, 1.0],
    "method.head_lr": [0.01, 0.1],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.lam": [1.0],
    "method.head_lr": [0.1],
    "train.lr": [0.01, 0.02],
}
