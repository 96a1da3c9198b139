"""Local training: a baseline without a paper; its rate is tuned like that of the methods it is compared with."""

from typing import Any

SPACE: dict[str, list[Any]] = {"train.lr": [0.01, 0.03, 0.1, 0.3]}
PAPER: dict[str, list[Any]] = {}
