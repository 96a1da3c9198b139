"""Records of runs that never were, with the numbers that a test needs."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pandas as pd

from fedbench.tasks import load
from fedbench_papers.claims.readings import Frames

SEEDS = (0, 1, 2)
Values = Mapping[int, Sequence[float]]
"""By seed, a number for every client."""


class Made:
    """agg, fit: last accuracies of clients by seed, in [0, 1]. curves: accuracy by seed and round. losses: likewise.

    traces: rows (seed, round, client, name, value). up: bytes. sizes: test images of every client. classes: by seed,
    the accuracy of every client on each of its classes, which have as many test images. test_losses: by seed, of
    every client.
    """

    def __init__(
        self,
        agg: Values | None = None,
        fit: Values | None = None,
        curves: Values | None = None,
        losses: Values | None = None,
        traces: Sequence[tuple] = (),
        up: float | None = None,
        sizes: Sequence[int] = (10, 10),
        classes: Mapping[int, Sequence[Sequence[float]]] | None = None,
        test_losses: Values | None = None,
    ) -> None:
        self.points: dict[str, Values] = {"after_agg": agg or {}, "after_fit": fit or agg or {}}
        self.curves, self.losses, self.rows, self.up, self.sizes = curves, losses or {}, traces, up, sizes
        self.by_class, self.test_losses = classes or {}, test_losses or {}

    def metric(self):
        return load("classification").primary

    def metrics(self) -> pd.DataFrame:
        rows = []
        for point, values in self.points.items():
            for seed, clients in values.items():
                curve = (self.curves or {seed: [sum(clients) / len(clients)]})[seed]
                losses = self.losses.get(seed, [None] * len(curve))
                for number, (test, loss) in enumerate(zip(curve, losses, strict=True), 1):
                    row: dict[str, Any] = dict(seed=seed, round=number, point=point, test_accuracy=test)
                    rows.append(row | dict(val_accuracy=None, train_loss=loss, bytes_up=self.up, clients=len(clients)))
        columns = ["seed", "round", "point", "test_accuracy", "val_accuracy", "train_loss", "bytes_up", "clients"]
        return pd.DataFrame(rows, columns=columns)

    def clients(self) -> pd.DataFrame:
        lasts = self.metrics().groupby(["seed", "point"])["round"].max()
        rows = [
            dict(seed=seed, round=lasts[seed, point], client=client, point=point, test_accuracy=value, test_n=size)
            | ({"test_loss": self.test_losses[seed][client]} if seed in self.test_losses else {})
            for point, values in self.points.items()
            for seed, own in values.items()
            for client, (value, size) in enumerate(zip(own, cycle(self.sizes), strict=False))
        ]
        columns = ["seed", "round", "client", "point", "test_accuracy", "test_n", "test_loss"]
        return pd.DataFrame(rows, columns=columns)

    def groups(self) -> pd.DataFrame:
        lasts = self.metrics().groupby(["seed", "point"])["round"].max()
        rows = [
            (seed, lasts[seed, point], client, point, "class", str(label), value, self.sizes[client] // len(shares))
            for point in self.points
            for seed, own in self.by_class.items()
            for client, shares in enumerate(own)
            for label, value in enumerate(shares)
        ]
        return pd.DataFrame(rows, columns=["seed", "round", "client", "point", "by", "group", "value", "n"])

    def traces(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows, columns=["seed", "round", "client", "name", "value"])


def frames(seeds: Sequence[int] = SEEDS, **numbers: Any) -> Frames:
    return Frames(Made(**numbers), seeds)  # type: ignore[arg-type]


def level(*means: float, clients: int = 2) -> dict[int, list[float]]:
    """The same accuracy for all clients of a seed."""
    return {seed: [mean] * clients for seed, mean in enumerate(means)}
