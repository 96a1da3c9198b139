"""FedCT: the paper names no grid; its code trains with Adam at 0.01 (CIFAR-10) or 0.001 in batches of 64.

Our rates are for sgd. How private and public images are combined differs between the paper and its code.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.combine": ["union", "paired", "sum"],
    "train.lr": [0.01, 0.03, 0.1, 0.3],
}
PAPER: dict[str, list[Any]] = {
    "method.combine": ["union", "paired"],
    "train.optimizer": ["adam"],
    "train.lr": [0.001, 0.01],
    "train.batch_size": [64],
    "train.keep_optimizer": [True],
}
