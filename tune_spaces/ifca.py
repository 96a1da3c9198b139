"""IFCA: the number of clusters; 2 (CIFAR-10), 3 (FEMNIST) and 4 (MNIST) in the paper."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.clusters": [2, 3],
    "method.shared": ["none", "body"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.clusters": [2, 3, 4],
    "method.average": ["models"],
}
