"""FedSelect: p (prune_percent 25 in the code) and alpha, which the paper sweeps over .05 .3 .5 .8; rates for sgd.

PAPER crosses that sweep with CO-PFL's values of p; p above alpha is left out, because the limit would cut the first
selection.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.personalization_rate": [0.05, 0.25],
    "method.personalization_limit": [0.3, 0.5],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.personalization_rate": [0.01, 0.05, 0.15, 0.25, 0.40, 0.50],
    "method.personalization_limit": [0.05, 0.30, 0.50, 0.80],
    "train.lr": [0.05],
}


def CONSTRAINT(cell: dict[str, Any]) -> bool:
    """No more is selected at once than the limit has."""
    return cell.get("method.personalization_rate", 0.0) <= cell.get("method.personalization_limit", 1.0)
