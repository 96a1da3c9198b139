"""FLUTE: the authors' code has one set of weights, a server rate of 0.5, and ten local epochs, one with the body.

How many epochs move the body decides most at a small rate, so it is tuned; with the default of 5 epochs 5 is always.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lambda_1": [0.0, 0.25],
    "method.rep_epochs": [1, 5],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.lambda_1": [0.25],
    "method.lambda_2": [0.0025],
    "method.lambda_3": [0.0005],
    "method.server_lr": [0.0, 0.5],
    "train.epochs": [10],
    "train.lr": [0.01],
    "train.batch_size": [10],
    "train.weight_decay": [1e-4],
}
