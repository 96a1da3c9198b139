"""pFedGate: the authors' scripts take rates from 0.01 to 1.5 for model and gate, and warn that both matter.

Factors near 0.5 in every layer shrink gradients, so that its best rates lie above those of fedavg.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lr_gate": [0.03, 0.1, 1.0],
    "train.lr": [0.03, 0.1, 0.3, 1.0],
}
PAPER: dict[str, list[Any]] = {
    "method.alternation": ["joint"],
    "method.blocks_per_tensor": [5],
    "method.lr_gate": [0.05, 0.1],
    "train.lr": [0.05, 0.1],
    "train.batch_size": [128],
}
