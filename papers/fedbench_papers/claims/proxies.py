"""Readings for claims about proxies: what a method computes, what that stands for, and their rank correlation.

A proxy and what it stands for have a number each per seed and client, per seed and pair of clients, or per seed,
client and parameter; the last of these levels is the one over which they are correlated.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedbench_papers.claims.properties import mean_overlaps
from fedbench_papers.claims.readings import INDEX, RECORD_POINTS, Frames, per_seed

PAIR = ["seed", "pair"]
NUMBER = [*INDEX, "number"]


def rank_correlation(first: pd.Series, second: pd.Series) -> pd.Series:
    """Spearman's correlation over the last level of two readings; 0 if one of them is constant, which ranks nothing."""
    both = pd.concat([first, second], axis=1, keys=["first", "second"]).dropna()
    names = list(both.index.names[:-1])
    correlations = {key: spearman(pair["first"], pair["second"]) for key, pair in both.groupby(level=names)}
    if names == INDEX:
        return pd.Series(correlations.values(), index=pd.MultiIndex.from_tuples(correlations, names=INDEX), dtype=float)
    return per_seed(pd.Series({seed: value for (seed,), value in correlations.items()}, dtype=float))


def spearman(first: pd.Series, second: pd.Series) -> float:
    if first.nunique() < 2 or second.nunique() < 2:
        return 0.0
    return float(stats.spearmanr(first, second).statistic)


def of_clients(runs: Frames, point: str, name: str, last: int = 0) -> pd.Series:
    """Mean of a trace over all rounds, or over the last ones, by seed and client."""
    table = runs.trace(name).pivot_table(index="round", columns=INDEX, values="value")
    return table.iloc[-last:].mean()


def score(runs: Frames, point: str, loss: bool = False, last: int = 1) -> pd.Series:
    """What is better when larger: accuracy in points, or the negative test loss, by seed and client.

    Mean over the last evaluated rounds.
    """
    rows = runs.clients[runs.clients["point"] == RECORD_POINTS[point]]
    column, factor = ("test_loss", -1.0) if loss else (f"test_{runs.metric.name}", runs.metric.factor)
    return rows.pivot_table(index="round", columns=INDEX, values=column).iloc[-last:].mean() * factor


def leaving_out(runs: Sequence[Frames], point: str, **how: Any) -> pd.Series:
    """How far the mean score of the others falls if a client is left out, by seed and client.

    runs: those with all clients, then those without client 0, without client 1, and so on; how: see `score`.
    """
    whole, by_client = score(runs[0], point, **how), dict[int, pd.Series]()
    for client, without in enumerate(runs[1:]):
        falls = whole - score(without, point, **how)
        by_client[client] = falls[falls.index.get_level_values("client") != client].groupby("seed").mean()
    return pd.concat(by_client, names=["client"]).reorder_levels(INDEX).sort_index()


def best_value(runs: Sequence[Frames], point: str, values: Sequence[float], **how: Any) -> pd.Series:
    """The value of the option with which a client scores best, by seed and client; the mean of several best ones.

    how: see `score`.
    """
    table = pd.DataFrame({value: score(run, point, **how) for value, run in zip(values, runs, strict=True)}).dropna()
    best = table.eq(table.max(axis=1), axis=0)
    return (best * table.columns.to_numpy()).sum(axis=1) / best.sum(axis=1)


def pair_overlaps(runs: Frames, point: str, rounds: Sequence[int]) -> pd.Series:
    """The mean overlap of each two clients over a range of rounds, by seed and pair."""
    return by_pair(mean_overlaps(runs, rounds))


def class_agreement(runs: Frames, point: str) -> pd.Series:
    """1 minus the total variation distance of each two clients' class distributions, by seed and pair."""
    rows, agreements = runs.traces[runs.traces["name"].str.startswith("class_share/")], {}
    for seed, rows_of_seed in rows.groupby("seed"):
        shares = rows_of_seed.pivot_table(index="client", columns="name", values="value").to_numpy()  # [n, C]
        agreements[int(str(seed))] = 1 - np.abs(shares[:, None] - shares).sum(2) / 2
    return by_pair(agreements)


def by_pair(matrices: dict[int, np.ndarray]) -> pd.Series:
    """The entries above the diagonal, by seed and pair, row by row."""
    values = {
        (seed, pair): matrix[entry]
        for seed, matrix in matrices.items()
        for pair, entry in enumerate(combinations(range(len(matrix)), 2))
    }
    return pd.Series(values.values(), index=pd.MultiIndex.from_tuples(values, names=PAIR), dtype=float)


def numbered(runs: Frames, point: str, name: str, size: bool = False) -> pd.Series:
    """Traces NAME/NUMBER of the last round that has them, or their sizes, by seed, client and number."""
    rows = runs.traces[runs.traces["name"].str.startswith(f"{name}/")]
    rows = rows[rows["round"] == rows.groupby("seed")["round"].transform("max")]
    number = rows["name"].str.removeprefix(f"{name}/").astype(int)
    values = rows.assign(number=number).set_index(NUMBER)["value"]
    return values.abs() if size else values


PROXY_FUNCTIONS: dict[str, Callable[..., pd.Series]] = {
    function.__name__: function
    for function in (of_clients, leaving_out, best_value, pair_overlaps, class_agreement, numbered)
}
