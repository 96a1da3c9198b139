"""Methods over settings and seeds: ranks with tests of all pairs, and summaries of their gains.

Summaries are interquartile means, performance profiles and the probability of improvement.

Settings differ in how high scores are, so what is summarised are gains over local training at the same seed: with plain
scores the middle half of all runs would be those of the middling settings. Intervals are 95 % percentile intervals of a
bootstrap that resamples seeds within every setting, for all methods alike, always with the same draws: settings are
fixed, seeds are random. Source: Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice",
NeurIPS 2021, sections 4.1 to 4.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from fedbench.results.contrasts import DRAWS, holm
from fedbench.results.rotations import DIGITS
from fedbench.results.statistics import CONFIDENCE, Interval
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import is_clear
from fedbench.tasks import Metric

THRESHOLDS = 101
"""Number of points of a profile."""


@dataclass(frozen=True)
class Profile:
    """The shares of runs with a gain above each threshold, `[T]`, with the ends of their pointwise intervals."""

    shares: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class SettingsSummary:
    """Methods over S settings and n seeds each, by label. thresholds: of the profiles, ascending, `[T]`."""

    settings: int
    seeds: int
    means: dict[str, Interval]
    ahead: dict[str, Interval]
    thresholds: np.ndarray
    profiles: dict[str, Profile]


def over_settings(scores: pd.DataFrame, metric: Metric, baseline: str = BASELINE) -> SettingsSummary | None:
    """scores: a row per setting and seed (a MultiIndex), a column per method, as recorded.

    Uses the seeds that all methods have in all settings, so that every setting counts the same. None without any, or
    without methods beside the baseline.
    """
    table = scores.dropna()
    settings = scores.index.get_level_values(0).unique()
    known = [set(table.loc[[name]].index.get_level_values(1)) if name in table.index else set() for name in settings]
    seeds = sorted(set.intersection(*known)) if known else []
    others = [str(label) for label in scores.columns if label != baseline]
    if not seeds or not others or baseline not in scores:
        return None
    whole = table.loc[pd.MultiIndex.from_product([settings, seeds])]
    values = {label: whole[label].to_numpy().reshape(len(settings), len(seeds)) for label in [*others, baseline]}
    gains = {label: gains_over(values[label], values[baseline], metric) for label in others}
    counts = resampled_counts(len(settings), len(seeds))
    every = np.concatenate(list(gains.values()))
    thresholds = np.linspace(float(every.min()), float(every.max()), THRESHOLDS)
    return SettingsSummary(
        len(settings),
        len(seeds),
        {label: _estimate(interquartile_means, gain, counts) for label, gain in gains.items()},
        {label: _estimate(shares_ahead, gain, counts) for label, gain in gains.items()},
        thresholds,
        {label: profile(gain, thresholds, counts) for label, gain in gains.items()},
    )


def gains_over(ours: np.ndarray, local: np.ndarray, metric: Metric) -> np.ndarray:
    """How much better than local training each run is, `[S, n]`.

    Shares and other scores of which more is better have the same unit everywhere, so this is a difference. Errors
    depend on the unit of a setting's targets: their difference is divided by local training's mean error there.
    """
    if metric.higher:
        return np.round(ours - local, DIGITS)
    return np.round((local - ours) / local.mean(1, keepdims=True), DIGITS)


def resampled_counts(settings: int, seeds: int, draws: int = DRAWS) -> np.ndarray:
    """How often each run is drawn, `[draws, S n]`: n of the n seeds of every setting, with replacement."""
    counts = np.random.default_rng(0).multinomial(seeds, [1 / seeds] * seeds, (draws, settings))
    return np.asarray(counts.reshape(draws, settings * seeds))


def interquartile_means(gains: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all runs, `[draws]`, as trim_mean of SciPy cuts it (section 4.3).

    gains: of R runs; counts: how often each is drawn, `[draws, R]`.
    """
    order = np.argsort(gains, axis=None, kind="stable")
    before = np.cumsum(counts[:, order], axis=1)
    whole = before[:, -1:]
    cut = whole // 4
    kept = np.diff(np.clip(before, cut, whole - cut), axis=1, prepend=cut)
    return np.asarray((kept * gains.ravel()[order]).sum(1) / (whole - 2 * cut)[:, 0])


def shares_ahead(gains: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The probability that a method improves on local training, `[draws]`; a tie counts half (section 4.3).

    Seeds share partition and initial weights, so each run is compared with that of its own seed alone, as Bouthillier
    et al. (MLSys 2021) advise, rather than with all runs of its setting.
    """
    better = np.where(gains == 0, 0.5, gains > 0).ravel()
    return np.asarray((counts * better).sum(1) / counts.sum(1))


def profile(gains: np.ndarray, thresholds: np.ndarray, counts: np.ndarray) -> Profile:
    """The run-score distribution: the share of runs with a gain above tau, for every tau (section 4.2)."""
    above = (gains.ravel()[:, None] > thresholds).astype(float)  # [S n, T]
    low, high = _ends((counts @ above) / gains.size)
    return Profile(above.mean(0), low, high)


def _estimate(
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray], gains: np.ndarray, counts: np.ndarray
) -> Interval:
    (value,) = statistic(gains, np.ones((1, gains.size), dtype=int))
    if gains.shape[1] < 2:
        return Interval(float(value), None, None, ())
    low, high = _ends(statistic(gains, counts))
    return Interval(float(value), float(low), float(high), ())


def _ends(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return low, high


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

    def not_told_from(self, method: str) -> list[str]:
        """The methods that cannot be told from this one, by rank."""
        shows_any = self.friedman is None or is_clear(self.friedman)
        apart = {frozenset(pair) for pair, p in self.pairs.items() if shows_any and is_clear(p)}
        return [other for other in self.ranks if other != method and {method, other} not in apart]

    def not_joined(self) -> list[tuple[str, str]]:
        """The pairs that cannot be told apart, but of which no group has both, since another one is between them."""
        joined = {pair for group in self.groups for pair in combinations(group, 2)}
        return [pair for pair, p in self.pairs.items() if pair not in joined and not is_clear(p)]


def ranking(scores: pd.DataFrame, higher: bool) -> Ranking:
    """scores: a row per block, a column per method. Blocks that a method lacks are left out."""
    from scipy import stats  # takes seconds to load, and most pages do without

    whole = scores.dropna().round(DIGITS)
    ranks = whole.rank(axis=1, ascending=not higher).mean().sort_values(kind="stable")
    names = [str(name) for name in ranks.index]
    columns = [whole[name].to_numpy() for name in names]
    friedman = float(stats.friedmanchisquare(*columns).pvalue) if len(names) > 2 and len(whole) > 1 else None
    both = list(combinations(names, 2)) if len(whole) else []
    pairs = dict(zip(both, holm([signed_rank(whole[a], whole[b]) for a, b in both]), strict=True))
    finest = min(1.0, 2 * 0.5 ** len(whole) * max(1, len(both)))
    apart = friedman is None or is_clear(friedman)
    together = groups(names, pairs) if apart else [names]
    return Ranking(len(whole), dict(zip(names, map(float, ranks), strict=True)), friedman, pairs, together, finest)


def signed_rank(one: pd.Series, other: pd.Series) -> float:
    """Two-sided p of Wilcoxon's signed-rank test; 1 where nothing differs."""
    from scipy import stats

    difference = (one - other).round(DIGITS).to_numpy()
    if not np.any(difference):
        return 1.0
    return float(stats.wilcoxon(difference).pvalue)


def groups(names: Sequence[str], pairs: dict[tuple[str, str], float]) -> list[list[str]]:
    """The longest runs of names, ascending by rank, in which no pair is told apart; those of one name are left out."""
    ends = []
    for start in range(len(names)):
        end = start
        while end + 1 < len(names) and not any(is_clear(pairs[a, names[end + 1]]) for a in names[start : end + 1]):
            end += 1
        ends.append(end)
    longest = [(s, e) for s, e in enumerate(ends) if e > s and (s == 0 or ends[s - 1] < e)]
    return [list(names[s : e + 1]) for s, e in longest]
