"""Rules that turn paired differences into a verdict on a claim.

A difference is a series over (seed, client), in points or in the reading's unit; the seed is the unit of every test,
because clients of a seed share partition, server and start. `delta` is the relevant margin. Fewer than three seeds give
no verdict. A bound is passed if a one-sided test says so at 2.5 %; where seeds differ, the 95 % interval excludes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np
import pandas as pd
from scipy import stats

from fedbench.results.contrasts import holm, p_of
from fedbench.results.rotations import DIGITS
from fedbench.results.statistics import CONFIDENCE, LEAST_SEEDS, Interval, interval

HOLDS, WEAKER, FAILS = "holds", "holds, weaker than published", "does not hold"
IDENTITY = "true by construction"
PREMISE = "premise not met"
"""Of a theorem, if runs show that what it presupposes is not so: neither for nor against it."""
DEGENERATE = "not judged: degenerate"
"""Of runs in which a method is not at work, at the last round or in most of them."""
UNDECIDED, TOWARDS, AGAINST = "undecided", "leans towards the claim", "leans against the claim"
LEVEL = 0.05
"""Significance level of one-sided tests of an order, and of all claims together."""
TAIL = (1 - CONFIDENCE) / 2
"""Significance level of the one-sided tests of a difference."""
TOO_FEW = f"no verdict below {LEAST_SEEDS} seeds"


@dataclass(frozen=True)
class Verdict:
    """word: one of the nine. estimate: of the difference, with its interval over seeds. p: one-sided, of the
    hypothesis that the claim is wrong; None without a test. reverse: whether the opposite is established. note: further
    results. p_fails: one-sided, of the hypothesis that the claim is right; None where no single test says so.
    """

    word: str
    estimate: Interval | None = None
    p: float | None = None
    reverse: bool = False
    note: str = ""
    p_fails: float | None = None

    @property
    def holds(self) -> bool:
        return self.word in (HOLDS, WEAKER, IDENTITY)

    @property
    def fails(self) -> bool:
        return self.word == FAILS


def corrected_word(word: str, p_adjusted: float | None, p_fails_adjusted: float | None = None) -> str:
    """The word of a verdict after the correction for the number of claims: what is no longer sure only leans."""
    if word in (HOLDS, WEAKER) and p_adjusted is not None and p_adjusted >= LEVEL:
        return TOWARDS
    return AGAINST if word == FAILS and p_fails_adjusted is not None and p_fails_adjusted >= LEVEL else word


def first_of(values: Sequence[float | None]) -> float | None:
    """The p that any of several tests rejects (Bonferroni); None if one of them is missing."""
    known = [value for value in values if value is not None]
    return min(1.0, len(known) * min(known)) if known and len(known) == len(values) else None


def better(difference: pd.Series, delta: float) -> Verdict:
    """Above 0; weaker than published if surely below delta; does not hold if so and not above 0."""
    estimate = of_seeds(difference)
    if has_too_few(estimate):
        return Verdict(UNDECIDED, estimate, note=TOO_FEW)
    p, p_small = p_above(estimate, 0.0), p_below(estimate, delta)
    if p < TAIL:
        return Verdict(WEAKER if p_small < TAIL else HOLDS, estimate, p, p_fails=p_small)
    word = FAILS if p_small < TAIL else open_word(difference, estimate, 0.0, inf)
    return Verdict(word, estimate, p, reverse=below(estimate, 0.0), p_fails=p_small)


def alike(difference: pd.Series, delta: float) -> Verdict:
    """Entirely within delta of 0, or entirely outside."""
    estimate = of_seeds(difference)
    if has_too_few(estimate):
        return Verdict(UNDECIDED, estimate, note=TOO_FEW)
    p = max(p_above(estimate, -delta), p_below(estimate, delta))
    ends = p_above(estimate, delta), p_below(estimate, -delta)
    if p < TAIL:
        return Verdict(HOLDS, estimate, p, p_fails=first_of(ends))
    word = FAILS if min(ends) < TAIL else open_word(difference, estimate, -delta, delta)
    return Verdict(word, estimate, p, p_fails=first_of(ends))


def never_below(difference: pd.Series, delta: float) -> Verdict:
    """Not below 0 by more than delta."""
    estimate = of_seeds(difference)
    if has_too_few(estimate):
        return Verdict(UNDECIDED, estimate, note=TOO_FEW)
    p, p_fails = p_above(estimate, -delta), p_below(estimate, 0.0)
    if p < TAIL:
        return Verdict(HOLDS, estimate, p, p_fails=p_fails)
    reverse = p_fails < TAIL
    word = FAILS if reverse else open_word(difference, estimate, -delta, inf)
    return Verdict(word, estimate, p, reverse, p_fails=p_fails)


def peaked(low: pd.Series, middle: pd.Series, high: pd.Series, delta: float) -> Verdict:
    """A rise to the middle option and a fall after it: both flanks by `better`; the estimate is that of the decisive
    flank, or the smaller one of two.
    """
    flanks = [better(difference(middle, end), delta) for end in (low, high)]
    word = all_of(flanks)
    deciding = [flank for flank in flanks if flank.word == word]
    least = min(deciding, key=lambda flank: flank.estimate.mean if flank.estimate else 0.0)
    values = [flank.p for flank in flanks if flank.p is not None]
    return replace(
        least,
        p=max(values) if len(values) == len(flanks) else None,
        p_fails=first_of([flank.p_fails for flank in flanks]),
        note="; ".join(f"{name} flank {flank.word}" for name, flank in zip(("lower", "upper"), flanks, strict=True)),
    )


def monotone(options: Sequence[pd.Series], delta: float) -> Verdict:
    """Ascending over three options or more: Page's exact test, seeds as blocks; the estimate is last minus first."""
    table = pd.concat([option.groupby("seed").mean() for option in options], axis=1).dropna().to_numpy().round(DIGITS)
    ends = better(difference(options[-1], options[0]), delta)
    if len(table) < LEAST_SEEDS:
        return Verdict(UNDECIDED, ends.estimate, note=TOO_FEW)
    up, down = (float(stats.page_trend_test(order, method="exact").pvalue) for order in (table, table[:, ::-1]))
    note = "means " + ", ".join(f"{mean:.2f}" for mean in table.mean(axis=0))
    if up <= LEVEL:
        return Verdict(HOLDS, ends.estimate, up, note=note)
    fails, p_fails = down <= LEVEL or ends.fails, first_of([down, ends.p_fails])
    return Verdict(FAILS if fails else UNDECIDED, ends.estimate, up, down <= LEVEL, note, p_fails)


def difference(first: pd.Series, second: pd.Series) -> pd.Series:
    """The difference paired by seed and client, over common pairs."""
    return (first - second).dropna()


def of_seeds(values: pd.Series) -> Interval:
    """Mean over seeds of the mean over a seed's clients, with its interval. Raises NoValue if there is none."""
    return interval(values.dropna().groupby("seed").mean().tolist())


def has_too_few(estimate: Interval) -> bool:
    """Whether there are too few seeds for a verdict."""
    return len(estimate.values) < LEAST_SEEDS


def p_above(estimate: Interval, bound: float) -> float:
    """One-sided p that the mean over seeds exceeds a bound: t test, or sign test if all are equal; 1 if too few."""
    beyond = np.round(np.subtract(estimate.values, bound), DIGITS)
    p = p_of(beyond.tolist())
    if p is None:
        return 1.0
    return p / 2 if beyond.mean() > 0 else 1 - p / 2


def p_below(estimate: Interval, bound: float) -> float:
    """One-sided p that the mean over seeds is below a bound, as `p_above`."""
    return p_above(interval([-value for value in estimate.values]), -bound)


def above(estimate: Interval, bound: float) -> bool:
    """Whether the mean surely exceeds a bound."""
    return p_above(estimate, bound) < TAIL


def below(estimate: Interval, bound: float) -> bool:
    """Whether the mean is surely below a bound."""
    return p_below(estimate, bound) < TAIL


def open_word(difference: pd.Series, estimate: Interval, low: float, high: float) -> str:
    """The word of what is not decided: towards the claim if all seeds and an interval over clients are above `low` and
    below `high`, against it if all are below `low` or all above `high`.
    """
    clients = interval(difference.dropna().tolist())
    least, most = (end(estimate.values) for end in (min, max))
    if clients.low is None or clients.high is None:
        return UNDECIDED
    least, most = min(least, clients.low), max(most, clients.high)
    if low < least and most < high:
        return TOWARDS
    return AGAINST if most < low or least > high else UNDECIDED


def ordered(scores: Mapping[str, pd.Series], published: Sequence[str], least: float) -> Verdict:
    """Kendall's tau between the order of means and a published one, best first: `least` holds, <= 0 does not.

    Nor does the published order hold if tau stays below `least` however the pairs that are not told apart stand.
    """
    seeds = {label: of_seeds(score) for label, score in scores.items()}
    if any(map(has_too_few, seeds.values())):
        return Verdict(UNDECIDED, note=TOO_FEW)
    means = {label: round(estimate.mean, DIGITS) for label, estimate in seeds.items()}
    ranks = [-rank for rank in range(len(published))]
    test = stats.kendalltau(ranks, [means[label] for label in published], alternative="greater")
    tau = float(test.statistic)
    if np.isnan(tau):
        return Verdict(UNDECIDED, note="all means are equal")
    swapped, pairs = swapped_pairs(scores, published), len(published) * (len(published) - 1) / 2
    fails = tau <= 0 or 1 - 2 * len(swapped) / pairs < least - 1e-9
    word = HOLDS if tau >= least - 1e-9 else FAILS if fails else UNDECIDED
    ours = sorted(published, key=lambda label: -means[label])
    note = f"tau {tau:.2f}: " + " > ".join(f"{label} {means[label]:.1f}" for label in ours)
    if swapped:
        note += "; surely the other way round: " + ", ".join(f"{worse} < {better}" for worse, better in swapped)
    return Verdict(word, p=float(test.pvalue), note=note)


def swapped_pairs(scores: Mapping[str, pd.Series], published: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of labels whose first is published as better and surely worse here, after Holm's correction for all."""
    pairs = list(combinations(published, 2))
    adjusted = holm([p_below(of_seeds(difference(scores[one], scores[other])), 0.0) for one, other in pairs])
    return [pair for pair, p in zip(pairs, adjusted, strict=True) if p <= LEVEL]


def property_of(flags: Mapping[int, bool], least: int | None = None, note: str = "") -> Verdict:
    """Holds if true in every seed, or in `least`; does not hold if false in more than half."""
    right = sum(flags.values())
    text = f"true in {right} of {len(flags)} seeds" + (f"; {note}" if note else "")
    if len(flags) < LEAST_SEEDS:
        return Verdict(UNDECIDED, note=f"{TOO_FEW}; {text}")
    if right >= (len(flags) if least is None else least):
        return Verdict(HOLDS, note=text)
    return Verdict(FAILS if right < len(flags) / 2 else UNDECIDED, note=text)


def identity_verdict(flags: Mapping[int, bool], note: str = "") -> Verdict:
    """Of what must be true: one seed shows it, and one seed in which it is false is a mistake of the implementation."""
    right = sum(flags.values())
    text = f"true in {right} of {len(flags)} seeds" + (f"; {note}" if note else "")
    return Verdict(UNDECIDED if not flags else IDENTITY if right == len(flags) else FAILS, note=text)


def all_of(parts: Sequence[Verdict]) -> str:
    """All must hold; one that does not is decisive, and then one whose premise is not met."""
    words = [part.word for part in parts]
    if FAILS in words:
        return FAILS
    if DEGENERATE in words:
        return DEGENERATE
    if PREMISE in words:
        return PREMISE
    if all(part.holds for part in parts):
        return next((word for word in (WEAKER, HOLDS) if word in words), IDENTITY)
    if AGAINST in words:
        return AGAINST
    return UNDECIDED if UNDECIDED in words else TOWARDS


def some_of(parts: Sequence[Verdict], count: int) -> str:
    """`count` must hold, none be reversed; not judged if too few are."""
    parts = [part for part in parts if part.word != DEGENERATE]
    if len(parts) < count:
        return DEGENERATE
    if all(part.word == PREMISE for part in parts):
        return PREMISE
    if any(part.reverse for part in parts) or sum(not part.fails for part in parts) < count:
        return FAILS
    held = [part for part in parts if part.holds]
    if len(held) < count:
        towards = len(held) + sum(part.word == TOWARDS for part in parts)
        return TOWARDS if towards >= count and not any(part.word == AGAINST for part in parts) else UNDECIDED
    return HOLDS if sum(part.word == HOLDS for part in held) >= count else WEAKER


def most_of(parts: Sequence[Verdict], count: int) -> str:
    """`count` must hold; fails if `count` reverse; not judged if too few are."""
    parts = [part for part in parts if part.word != DEGENERATE]
    if len(parts) < count:
        return DEGENERATE
    if all(part.word == PREMISE for part in parts):
        return PREMISE
    held, reverse = (sum(flags) for flags in ([p.holds for p in parts], [p.reverse for p in parts]))
    towards, against = (sum(p.word == word for p in parts) for word in (TOWARDS, AGAINST))
    decided = ((held, HOLDS), (reverse, FAILS), (held + towards, TOWARDS), (reverse + against, AGAINST))
    return next((word for number, word in decided if number >= count), UNDECIDED)
