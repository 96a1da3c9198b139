"""FedKD: how much of an update is kept at first, and the rate; PAPER holds the thresholds of public code."""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.energy_start": [0.8, 0.95],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {"method.energy_start": [0.95], "method.energy_end": [0.98]}
