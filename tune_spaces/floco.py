"""Floco: the authors take 20 endpoints for Dirichlet partitions, 10 for others, and project after half of the rounds.

With few clients there are no more endpoints than clients; two values of rho tell whether the part's size matters.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.endpoints": [5, 10],
    "method.rho": [0.01, 0.1],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.endpoints": [10, 20],
    "method.tau": [250],
    "method.rho": [0.01, 0.1, 0.5],
    "method.personal_epochs": [0, 5],
    "train.lr": [0.02],
    "train.momentum": [0.5],
    "train.weight_decay": [5e-4],
    "train.batch_size": [50],
}
