"""Readings of claims from the records of runs: one number per seed, or per seed and client.

A reading is a series over (seed, client); client -1 stands for all clients of a seed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.results.degenerate import degenerate_seeds
from fedbench.results.reader import Records
from fedbench.results.statistics import pooled_means
from fedbench.results.tables import LAST, chosen_rows, clients_at
from fedbench.tasks import Metric

RECORD_POINTS = {"agg": "after_agg", "fit": "after_fit"}
INDEX = ["seed", "client"]
ALL = -1


class Frames:
    """The records of the runs of one configuration, each table read once. seeds: those to read."""

    def __init__(self, records: Records, seeds: Sequence[int]) -> None:
        self.records, self.seeds = records, seeds

    @cached_property
    def metrics(self) -> pd.DataFrame:
        return self._of_own_seeds(self.records.metrics())

    @cached_property
    def clients(self) -> pd.DataFrame:
        return self._of_own_seeds(self.records.clients())

    @cached_property
    def groups(self) -> pd.DataFrame:
        return self._of_own_seeds(self.records.groups())

    @cached_property
    def traces(self) -> pd.DataFrame:
        return self._of_own_seeds(self.records.traces())

    def _of_own_seeds(self, table: pd.DataFrame) -> pd.DataFrame:
        return table[table["seed"].isin(list(self.seeds))].reset_index(drop=True)

    @property
    def metric(self) -> Metric:
        return self.records.metric()

    @cached_property
    def degenerate(self) -> frozenset[int]:
        """The seeds in which the method is not at work."""
        return frozenset(degenerate_seeds(self.metrics, self.traces))

    def without(self, seeds: Collection[int]) -> "Frames":
        """These runs without some of their seeds."""
        return Frames(self.records, [seed for seed in self.seeds if seed not in seeds])

    def at(self, point: str) -> pd.DataFrame:
        return self.metrics[self.metrics["point"] == RECORD_POINTS[point]]

    def trace(self, name: str) -> pd.DataFrame:
        """Rounds of a trace: columns seed, round, client, value."""
        return self.traces[self.traces["name"] == name].dropna(subset=["value"])


Arms = Mapping[str, Frames]


def accuracy(runs: Frames, point: str, choice: str = LAST) -> pd.Series:
    """The test metric of every client, shares in points, at the last or another chosen round."""
    values = chosen_clients(runs, point, choice).set_index(INDEX)[f"test_{runs.metric.name}"]
    return values * runs.metric.factor


def chosen_clients(runs: Frames, point: str, choice: str = LAST) -> pd.DataFrame:
    """The rows of all clients at the last or another chosen round."""
    return clients_at(runs.clients, chosen_rows(runs.metric, runs.metrics, RECORD_POINTS[point], choice))


def batch_gap(runs: Frames, point: str, batch: int) -> pd.Series:
    """Accuracy as mean over batches minus mean over samples, in points, for test samples in class order.

    The expectation over orders within a class, from the share correct of each class (`evaluate.by`).
    """
    rows = clients_at(runs.groups, chosen_rows(runs.metric, runs.metrics, RECORD_POINTS[point], LAST))
    rows = rows[rows["by"] == "class"].astype({"group": int}).sort_values([*INDEX, "group"])
    gaps = {key: _gap(part["value"].to_numpy(), part["n"].to_numpy(int), batch) for key, part in rows.groupby(INDEX)}
    return pd.Series(gaps).rename_axis(INDEX) * 100


def _gap(shares: np.ndarray, counts: np.ndarray, batch: int) -> float:
    """The gap of one client. shares, counts: of its classes in order, `[C]`."""
    total = counts.sum()
    batches = np.arange(total) // batch
    weights = 1 / np.bincount(batches)[batches] / (batches[-1] + 1)  # per sample, [total]
    by_class = np.add.reduceat(weights, np.cumsum(counts) - counts)
    return float(shares @ (by_class - counts / total))


def pooled_accuracy(runs: Frames, point: str) -> pd.Series:
    """The share of correct samples over all clients' test samples together, in points."""
    rows = chosen_clients(runs, point)
    return per_seed(pooled_means(rows["seed"], rows[f"test_{runs.metric.name}"] * runs.metric.factor, rows["test_n"]))


def decline(runs: Frames, point: str, window: int = 5) -> pd.Series:
    """The best mean of consecutive rounds minus the mean of the last ones, in points."""
    rows = runs.at(point).pivot(index="round", columns="seed", values="test_accuracy") * 100
    means = rows.rolling(min(window, len(rows))).mean().dropna()
    return per_seed(means.max() - means.iloc[-1])


def over_rounds(runs: Frames, point: str, every: int = 1) -> pd.Series:
    """Mean over the last round and the multiples of `every`, in points: the area under the curve."""
    rows = runs.at(point)
    rows = rows[(rows["round"] % every == 0) | (rows["round"] == rows["round"].max())]
    return per_seed(rows.groupby("seed")["test_accuracy"].mean() * 100)


def log_loss(runs: Frames, point: str, last: int = 10) -> pd.Series:
    """Mean over the last rounds of the logarithm of the mean training loss of a round's steps."""
    losses = training_losses(runs)
    return per_seed(np.log(losses.iloc[-last:]).mean())


def roughness(runs: Frames, point: str) -> pd.Series:
    """Mean absolute change of the training loss from one round to the next."""
    return per_seed(training_losses(runs).diff().abs().mean())


def training_losses(runs: Frames) -> pd.DataFrame:
    """Rounds x seeds."""
    rows = runs.at("fit").dropna(subset=["train_loss"])
    return rows.pivot(index="round", columns="seed", values="train_loss")


def traced(runs: Frames, point: str, name: str, rounds: Sequence[int] = ()) -> pd.Series:
    """Mean over rounds (by default the last one) and clients of a trace."""
    rows = runs.trace(name)
    kept = rows["round"].isin(rounds) if rounds else rows["round"] == rows.groupby("seed")["round"].transform("max")
    return per_seed(rows[kept].groupby("seed")["value"].mean())


def spread_of(runs: Frames, point: str, name: str) -> pd.Series:
    """Largest minus smallest value of a trace among the clients of a round, mean over rounds."""
    by_round = runs.trace(name).groupby(["seed", "round"])["value"]
    return per_seed((by_round.max() - by_round.min()).groupby("seed").mean())


def trend(runs: Frames, point: str, name: str) -> pd.Series:
    """Kendall's tau between a trace's mean over clients and the round."""
    means = runs.trace(name).groupby(["seed", "round"])["value"].mean().unstack("seed")
    return per_seed(means.apply(lambda values: kendall(values.dropna())))


def kendall(values: pd.Series) -> float:
    """tau between a series and its index."""
    return float(stats.kendalltau(values.index.to_numpy(), values.to_numpy()).statistic)


def log_ratio(runs: Frames, point: str, name: str, high: Sequence[int], low: Sequence[int]) -> pd.Series:
    """Log of the mean of traces NAME/NUMBER over some numbers minus that over others, in round 1."""
    rows = runs.traces[runs.traces["name"].str.startswith(f"{name}/")]
    rows = rows[rows["round"] == rows["round"].min()]
    number = rows["name"].str.removeprefix(f"{name}/").astype(int)
    first, second = (rows[number.isin(list(group))].groupby("seed")["value"].mean() for group in (high, low))
    return per_seed(np.log(first) - np.log(second))


def only_client(runs: Frames, point: str, client: int) -> pd.Series:
    """The accuracy of one client, in points."""
    scores = accuracy(runs, point)
    return scores[scores.index.get_level_values("client") == client]


def only_domain(runs: Frames, point: str, domain: int, domains: int = 4) -> pd.Series:
    """The accuracy of the clients of one domain (numbered domain by domain), in points."""
    scores = accuracy(runs, point)
    clients = scores.index.get_level_values("client")
    return scores[clients * domains // (clients.max() + 1) == domain]


def per_seed(values: pd.Series) -> pd.Series:
    """A reading from one number per seed."""
    index = pd.MultiIndex.from_arrays([values.index.astype(int), [ALL] * len(values)], names=INDEX)
    return pd.Series(values.to_numpy(dtype=float), index=index)


READING_FUNCTIONS: dict[str, Callable[..., pd.Series]] = {
    function.__name__: function
    for function in (
        accuracy,
        pooled_accuracy,
        batch_gap,
        decline,
        over_rounds,
        log_loss,
        roughness,
        traced,
        spread_of,
        trend,
        log_ratio,
        only_client,
        only_domain,
    )
}
