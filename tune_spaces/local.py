"""Local training: a baseline without a paper, with as many candidates as the methods that it is compared with.

A wide range of rates, because a baseline whose best rate lies at an end of what was tried proves nothing.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
    "train.momentum": [0.0, 0.9],
}
PAPER: dict[str, list[Any]] = {}
