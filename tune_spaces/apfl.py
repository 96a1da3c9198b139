"""APFL: the paper studies fixed alphas of 0, 0.25, 0.5, 0.75 and 1, and a learned one."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.alpha": [0.25, 0.75],
    "method.alpha_update": ["round", "off"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.alpha": [0.0, 0.25, 0.5, 0.75, 1.0],
    "method.alpha_update": ["round", "off"],
}
