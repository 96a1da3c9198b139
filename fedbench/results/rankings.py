"""Methods ranked over many blocks: Friedman's test, paired tests of all pairs, and who cannot be told apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.results.contrasts import ALPHA, holm
from fedbench.results.rotations import DIGITS


@dataclass(frozen=True)
class Ranking:
    """Over blocks that all methods share (Demsar, JMLR 2006; pairs by Wilcoxon as Benavoli et al., JMLR 2016, advise).

    ranks: mean rank by method, 1 the best, ascending; friedman: p of no difference among three methods or more;
    pairs: p of every pair by Wilcoxon's signed-rank test, adjusted by Holm; groups: methods beside each other in ranks
    none of which can be told from another of the group; finest: the smallest p that so many blocks can give a pair,
    adjusted for the number of pairs.
    """

    blocks: int
    ranks: dict[str, float]
    friedman: float | None
    pairs: dict[tuple[str, str], float]
    groups: list[list[str]]
    finest: float


def ranking(scores: pd.DataFrame, higher: bool) -> Ranking:
    """scores: a row per block, a column per method. Blocks that a method lacks are left out."""
    whole = scores.dropna().round(DIGITS)
    ranks = whole.rank(axis=1, ascending=not higher).mean().sort_values(kind="stable")
    names = [str(name) for name in ranks.index]
    columns = [whole[name].to_numpy() for name in names]
    friedman = float(stats.friedmanchisquare(*columns).pvalue) if len(names) > 2 and len(whole) > 1 else None
    both = list(combinations(names, 2)) if len(whole) else []
    pairs = dict(zip(both, holm([signed_rank(whole[a], whole[b]) for a, b in both]), strict=True))
    finest = min(1.0, 2 * 0.5 ** len(whole) * max(1, len(both)))
    apart = friedman is None or friedman < ALPHA
    together = groups(names, pairs) if apart else [names]
    return Ranking(len(whole), dict(zip(names, map(float, ranks), strict=True)), friedman, pairs, together, finest)


def signed_rank(one: pd.Series, other: pd.Series) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; 1 where nothing differs."""
    difference = (one - other).round(DIGITS).to_numpy()
    if not np.any(difference):
        return 1.0
    return float(stats.wilcoxon(difference).pvalue)


def groups(names: Sequence[str], pairs: dict[tuple[str, str], float]) -> list[list[str]]:
    """The longest runs of names, ascending by rank, in which no pair is told apart; those of one name are left out."""
    ends = []
    for start in range(len(names)):
        end = start
        while end + 1 < len(names) and all(pairs[name, names[end + 1]] >= ALPHA for name in names[start : end + 1]):
            end += 1
        ends.append(end)
    longest = [(s, e) for s, e in enumerate(ends) if e > s and (s == 0 or ends[s - 1] < e)]
    return [list(names[s : e + 1]) for s, e in longest]
