"""FedDPA: the paper sweeps the threshold tau and both constraints; 0.4, 0.1 and 0.05 are the defaults of its code.

The code trains with Adam at rate 0.001, two local epochs and batches of 16; our rates are for sgd.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.threshold": [0.1, 0.4, 0.7],
    "method.lambda_2": [0.0, 0.05],
    "train.lr": [0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.threshold": [0.4],
    "method.lambda_1": [0.0, 0.1],
    "method.lambda_2": [0.0, 0.05],
    "method.clipping_bound": [0.5],
    "train.optimizer": ["adam"],
    "train.lr": [0.001],
    "train.epochs": [2],
    "train.batch_size": [16],
}
