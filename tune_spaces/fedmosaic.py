"""FedMosaic: the paper names no grid; it compares expertise by frequency and by entropy (table 4).

Its rate of 0.01 belongs to Adam on Office-10 and DomainNet (appendix C); ours are for sgd.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.expertise": ["class_frequency", "entropy"],
    "method.lambda_update": ["round", "epoch"],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.expertise": ["class_frequency", "entropy"],
    "train.optimizer": ["adam"],
    "train.lr": [0.01],
    "train.batch_size": [32, 64],
}
