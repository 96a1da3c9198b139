"""FedAvg with fine-tuning: a baseline without a paper; Collins et al. (2021) fine-tune for 10 epochs."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.ft_epochs": [None, 10],
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
}
PAPER: dict[str, list[Any]] = {"method.ft_epochs": [10]}
