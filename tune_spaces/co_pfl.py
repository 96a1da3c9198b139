"""CO-PFL: table 2 varies p and gamma; best (p, gamma) (.25, .5) on CIFAR-10, (.15, .5) on CIFAR-10-C. Rates for Adam.

C.4 of the first version lists other values of p (.01 .05 .2 .5) than its tables. PAPER is the grid of the tables; there
p is never above gamma, which would be a selection of more than may ever become personal.
"""

from typing import Any

OPTIMIZER = "adam"
SPACE: dict[str, list[Any]] = {
    "method.personalization_rate": [0.05, 0.25],
    "method.personalization_budget": [0.3, 0.5],
    "train.lr": [1e-4, 3e-4, 1e-3],
}
PAPER: dict[str, list[Any]] = {
    "method.personalization_rate": [0.01, 0.05, 0.15, 0.25, 0.40, 0.50],
    "method.personalization_budget": [0.05, 0.30, 0.50, 0.80],
    "train.lr": [1e-5, 1e-4],
}


def CONSTRAINT(cell: dict[str, Any]) -> bool:
    """No more is selected at once than the budget has."""
    return cell.get("method.personalization_rate", 0.0) <= cell.get("method.personalization_budget", 1.0)
