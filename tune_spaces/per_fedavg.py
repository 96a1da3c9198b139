"""Per-FedAvg: the paper names no grid; alpha is the step that a client will take, and beta, the run's rate, is tuned.

delta stays at the paper's 1e-3. The Hessian term matters where alpha is large.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.variant": ["fo", "hf"],
    "method.alpha": [0.01, 0.1],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.variant": ["fo", "hf"],
    "method.delta": [1e-3],
}
