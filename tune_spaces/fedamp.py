"""FedAMP: the paper fixes its numbers per data set in an appendix; sigma decides, and has to be searched.

Weights fall where squared distances of models come near sigma; those grow from below 1 to hundreds, for which a small
net and many rounds need the lower values. HeurFedAMP takes 1 to 100 instead and is a grid of its own.
"""

from typing import Any

SPACE: dict[str, list[Any]] = {
    "method.sigma": [1e2, 1e4, 1e5, 1e6],
    "train.lr": [0.01, 0.03, 0.1],
}
PAPER: dict[str, list[Any]] = {"method.variant": ["fedamp", "heur"]}
