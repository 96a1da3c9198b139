"""FedCAC: sec. 4.5 of the paper prefers tau 0.5 and, for 500 rounds, beta 100 (CIFAR-10) or 170 (CIFAR-100, Tiny).

A beta of none is a fifth of the rounds, as the paper's 100 of 500; 30 collaborates for half of the default 60 rounds.
Accuracy is flat near the best tau and beta (fig. 5 and 6), so that few values are enough. The paper trains at rate 0.1
in batches of 100, five epochs a round (sec. 4.2).
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.tau": [0.3, 0.5, 0.7],
    "method.beta": [None, 30.0],
    "train.lr": [0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.tau": [0.5],
    "method.beta": [100.0, 170.0],
    "train.lr": [0.1],
    "train.batch_size": [100],
    "train.epochs": [5],
}
