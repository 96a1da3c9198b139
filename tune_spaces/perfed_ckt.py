"""PerFed-CKT: no stated values were at hand; the weight of the distillation and the clusters are tuned."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [0.01, 0.1],
    "method.num_clusters": [2, 4],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {}
