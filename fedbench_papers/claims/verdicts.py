"""Rules that turn paired differences into a verdict on a claim.

A difference is a series over (seed, client), in points or in the reading's unit; the seed is the unit of every
interval, because clients of a seed share partition, server and start. `delta` is the relevant margin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.results.statistics import Interval, interval

HOLDS, WEAKER, FAILS = "holds", "holds, weaker than published", "does not hold"
UNDECIDED, LEANING, UNCORRECTED = "undecided", "undecided, leaning", "undecided after correction"
LEVEL = 0.05
"""Significance level of one-sided tests of an order, and of all claims together."""


@dataclass(frozen=True)
class Verdict:
    """word: one of the five. estimate: of the difference, with its interval over seeds. p: one-sided, of the hypothesis
    that the claim is wrong; None without a test. reverse: whether the opposite is established. note: further results.
    """

    word: str
    estimate: Interval | None = None
    p: float | None = None
    reverse: bool = False
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.word in (HOLDS, WEAKER)

    @property
    def fails(self) -> bool:
        return self.word == FAILS


def corrected(word: str, p_adjusted: float | None) -> str:
    """The word of a verdict after the correction for the number of claims: one that no longer holds is undecided."""
    return UNCORRECTED if word in (HOLDS, WEAKER) and p_adjusted is not None and p_adjusted >= LEVEL else word


def better(difference: pd.Series, delta: float) -> Verdict:
    """Above 0; weaker than published if surely below delta; does not hold if so and not above 0."""
    found = of_seeds(difference)
    if found.low is None or found.high is None:
        return Verdict(UNDECIDED, found)
    p, reverse = p_above(found, 0.0), found.high < 0
    if found.low > 0:
        return Verdict(WEAKER if found.high < delta else HOLDS, found, p)
    return Verdict(FAILS if found.high < delta else open_word(difference, found), found, p, reverse)


def alike(difference: pd.Series, delta: float) -> Verdict:
    """Entirely within delta of 0, or entirely outside."""
    found = of_seeds(difference)
    if found.low is None or found.high is None:
        return Verdict(UNDECIDED, found)
    p = max(p_above(found, -delta), 1 - p_above(found, delta))
    if -delta <= found.low and found.high <= delta:
        return Verdict(HOLDS, found, p)
    outside = found.low > delta or found.high < -delta
    return Verdict(FAILS if outside else open_word(difference, found), found, p)


def never_below(difference: pd.Series, delta: float) -> Verdict:
    """Not below 0 by more than delta."""
    found = of_seeds(difference)
    if found.low is None or found.high is None:
        return Verdict(UNDECIDED, found)
    p = p_above(found, -delta)
    if found.low > -delta:
        return Verdict(HOLDS, found, p)
    return Verdict(FAILS if found.high < 0 else open_word(difference, found), found, p, found.high < 0)


def peaked(low: pd.Series, middle: pd.Series, high: pd.Series, delta: float) -> Verdict:
    """A rise to the middle option and a fall after it: both flanks by `better`; the estimate is that of the decisive
    flank, or the smaller one of two.
    """
    flanks = [better(difference(middle, end), delta) for end in (low, high)]
    word = all_of(flanks)
    deciding = [found for found in flanks if found.word == word]
    least = min(deciding, key=lambda found: found.estimate.mean if found.estimate else 0.0)
    values = [found.p for found in flanks if found.p is not None]
    return replace(
        least,
        p=max(values) if len(values) == len(flanks) else None,
        note="; ".join(f"{name} flank {found.word}" for name, found in zip(("lower", "upper"), flanks, strict=True)),
    )


def monotone(options: Sequence[pd.Series], delta: float) -> Verdict:
    """Ascending over three options or more: Page's exact test, seeds as blocks; the estimate is last minus first."""
    table = pd.concat([option.groupby("seed").mean() for option in options], axis=1).dropna().to_numpy()
    ends = better(difference(options[-1], options[0]), delta)
    if len(table) < 2:
        return Verdict(UNDECIDED, ends.estimate)
    up, down = (float(stats.page_trend_test(order, method="exact").pvalue) for order in (table, table[:, ::-1]))
    note = "means " + ", ".join(f"{mean:.2f}" for mean in table.mean(axis=0))
    if up <= LEVEL:
        return Verdict(HOLDS, ends.estimate, up, note=note)
    fails = down <= LEVEL or ends.fails
    return Verdict(FAILS if fails else UNDECIDED, ends.estimate, up, down <= LEVEL, note)


def difference(first: pd.Series, second: pd.Series) -> pd.Series:
    """The difference paired by seed and client, over common pairs."""
    return (first - second).dropna()


def of_seeds(values: pd.Series) -> Interval:
    """Mean over seeds of the mean over a seed's clients, with its interval. Raises NoValue if there is none."""
    return interval(values.dropna().groupby("seed").mean().tolist())


def p_above(found: Interval, bound: float) -> float:
    """One-sided t test over seeds that the mean exceeds a bound; values without spread decide directly."""
    if np.ptp(found.values) == 0:
        return 0.0 if found.mean > bound else 1.0
    return float(stats.ttest_1samp(found.values, bound, alternative="greater").pvalue)


def open_word(difference: pd.Series, found: Interval) -> str:
    """Leaning if all seeds have one sign and an interval over clients excludes 0."""
    signs = set(np.sign(found.values))
    leaning = len(signs) == 1 and 0 not in signs and interval(difference.dropna().tolist()).sign != 0
    return LEANING if leaning else UNDECIDED


def ordered(means: Mapping[str, float], published: Sequence[str], least: float) -> Verdict:
    """Kendall's tau between the order of means and a published one, best first: `least` holds, <= 0 does not."""
    ranks = [-place for place in range(len(published))]
    found = stats.kendalltau(ranks, [means[label] for label in published], alternative="greater")
    tau = float(found.statistic)
    word = HOLDS if tau >= least - 1e-9 else FAILS if tau <= 0 else UNDECIDED
    ours = sorted(published, key=lambda label: -means[label])
    note = f"tau {tau:.2f}: " + " > ".join(f"{label} {means[label]:.1f}" for label in ours)
    return Verdict(word, p=float(found.pvalue), note=note)


def property_of(flags: Mapping[int, bool], least: int | None = None, note: str = "") -> Verdict:
    """Holds if true in every seed, or in `least`; does not hold if false in more than half."""
    right = sum(flags.values())
    said = f"true in {right} of {len(flags)} seeds" + (f"; {note}" if note else "")
    if flags and right >= (len(flags) if least is None else least):
        return Verdict(HOLDS, note=said)
    return Verdict(FAILS if right < len(flags) / 2 else UNDECIDED, note=said)


def all_of(parts: Sequence[Verdict]) -> str:
    """All must hold; one that does not is decisive."""
    if any(part.fails for part in parts):
        return FAILS
    if not all(part.holds for part in parts):
        return LEANING if all(part.holds or part.word == LEANING for part in parts) else UNDECIDED
    return WEAKER if any(part.word == WEAKER for part in parts) else HOLDS


def some_of(parts: Sequence[Verdict], count: int) -> str:
    """`count` must hold, none be reversed."""
    if any(part.reverse for part in parts) or sum(not part.fails for part in parts) < count:
        return FAILS
    held = [part for part in parts if part.holds]
    if len(held) < count:
        return UNDECIDED
    return HOLDS if sum(part.word == HOLDS for part in held) >= count else WEAKER


def most_of(parts: Sequence[Verdict], count: int) -> str:
    """`count` must hold; fails if `count` reverse."""
    held, reverse = (sum(flags) for flags in ([p.holds for p in parts], [p.reverse for p in parts]))
    return HOLDS if held >= count else FAILS if reverse >= count else UNDECIDED
