"""FedALA: the paper varies the top layers p and the share of images s, from 5 to 100 %; weights learn at rate 1."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.num_layers": [1, 2],
    "method.sample_ratio": [0.8, 1.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.num_layers": [1, 2, 3, 4, 5, 6],
    "method.sample_ratio": [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0],
    "method.eta": [1.0],
}
