"""FML: both weights, and the rate; where they are 1, nothing is learnt from the other model."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.alpha": [0.25, 0.5, 0.75],
    "train.lr": [0.01, 0.03, 0.1],
}
