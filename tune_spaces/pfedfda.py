"""pFedFDA: nothing but the rate is tuned in the authors' runs (0.01); the ablations fix or share its weights.

A ridge of 1 shrinks a covariance of small features much, so a smaller one, nearer to the paper's notation, is tried.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.cov_ridge": [0.01, 1.0],
    "train.lr": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
}
PAPER: dict[str, list[Any]] = {
    "method.single_beta": [False, True],
    "train.lr": [0.01],
    "train.epochs": [5],
}
