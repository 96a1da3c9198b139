"""kNN-Per: lam is chosen per client in the paper; the number of neighbours hardly matters."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.3, 0.5, 0.7],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.lam": ["auto"],
    "method.k": [10],
    "train.lr": [0.05],
    "train.batch_size": [128],
}
