"""pFedHN: the network moves slowly at first; from the model of the run (w0) it starts where the others do."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.variant": ["full", "pc"],
    "method.hyper_init": ["random", "w0"],
    "train.lr": [0.005, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.variant": ["full", "pc"],
    "method.server_lr": [0.01],
    "train.lr": [0.005],
}
