"""pFedMe: sec. 5 of the paper tunes lam, both rates and beta per data set; its lr 0.005 with lam 15 is slow.

lr x lam must stay below 1 and personal_lr x (lam + curvature) below 2: 0.01 to 0.03 for a convolution net.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.lam": [1.0, 15.0],
    "method.personal_lr": [0.01, 0.03],
    "train.lr": [0.005, 0.02, 0.05],
}
PAPER: dict[str, list[Any]] = {
    "method.lam": [15.0],
    "method.inner_steps": [5],
    "method.beta": [1.0, 2.0],
    "train.lr": [0.005],
    "train.steps": [20],
    "train.batch_size": [20],
}


def CONSTRAINT(cell: dict[str, Any]) -> bool:
    """w must not overshoot theta."""
    return cell.get("train.lr", 0.0) * cell.get("method.lam", 0.0) < 1
