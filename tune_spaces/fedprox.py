"""FedProx: sec. 5 of the paper tunes mu over four values per data set (best 1, 1, 1, 0.001, 0.01)."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.mu": [0.001, 0.01, 0.1, 1.0],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {"method.mu": [0.001, 0.01, 0.1, 1.0]}


def CONSTRAINT(cell: dict[str, Any]) -> bool:
    """Proximal steps diverge from lr x mu = 2 on."""
    return cell.get("train.lr", 0.0) * cell.get("method.mu", 0.0) < 2
