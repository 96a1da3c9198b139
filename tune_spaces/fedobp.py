"""FedOBP: the paper tunes the quantile alone (table 5 has the best per data set; fig. 4 and 8 sweep it).

Its values leave some tens of personal numbers of half a million to a million; the smaller model here needs lower ones
for as many. The paper trains with batches of 32 at rate 0.01, without momentum and decay.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.quantile": [0.9, 0.99, 0.995, 0.999],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {
    "method.quantile": [
        0.99998,
        0.99997,
        0.99995,
        0.99993,
        0.99992,
        0.9999,
        0.9998,
        0.99979,
        0.9997,
        0.9991,
        0.995,
        0.9,
        0.8,
        0.7,
        0.6,
        0.5,
        0.4,
        0.3,
        0.2,
        0.1,
        0.0,
    ],
    "train.lr": [0.01],
    "train.batch_size": [32],
    "train.momentum": [0.0],
    "train.weight_decay": [0.0],
}
