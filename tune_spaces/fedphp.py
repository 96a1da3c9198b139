"""FedPHP: the authors' runs take lambda 0.1 for features and 0.1 or 0.05 for probabilities, and mu 0.9."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.transfer": ["mmd", "kd"],
    "method.lam": [0.05, 0.1],
    "train.lr": [0.03, 0.1, 0.3],
}
PAPER: dict[str, list[Any]] = {
    "method.transfer": ["mmd", "kd"],
    "method.lam": [0.05, 0.1],
    "method.mu": [0.9],
}
