"""Who is better: one value for the answers of all tests, and the one place that says what is better, worse or equal."""

from dataclasses import dataclass
from math import isclose
from typing import Literal

from fedbench.results.statistics import CONFIDENCE, LEAST_SEEDS, Interval

ALPHA = 1 - CONFIDENCE
Relation = Literal["better", "worse", "equal", "open", "withheld"]
SIGNS = {"better": 1, "worse": -1}


@dataclass(frozen=True)
class Bound:
    """A mean paired difference over n seeds with its standard error and the ends of its simultaneous interval.

    samples: the part of the standard error that comes from the choice of test samples.
    """

    mean: float
    low: float
    high: float
    error: float
    seeds: int
    samples: float = 0.0

    def __neg__(self) -> "Bound":
        """The difference as seen from the other method."""
        return Bound(-self.mean, -self.high, -self.low, self.error, self.seeds, self.samples)


def is_clear(p: float | None) -> bool:
    """Whether a p value shows a difference; an unknown one shows none."""
    return p is not None and p < ALPHA


def relation_of_interval(difference: Interval | Bound, margin: float | None = None) -> Relation:
    """The relation that the interval of a difference shows.

    Better above 0, worse below, equal if it lies within the margin on both sides. Fewer than three seeds: open.
    """
    if difference.low is None or difference.high is None or difference.seeds < LEAST_SEEDS:
        return "open"
    if is_by_chance(difference):
        return "open"
    if difference.low > 0:
        return "better"
    if difference.high < 0:
        return "worse"
    return "equal" if margin is not None and -margin < difference.low and difference.high < margin else "open"


def is_by_chance(difference: Interval | Bound) -> bool:
    """Whether all seeds show the same difference, but so few that their signs may agree by chance.

    The choice of test samples may give such a difference an interval all the same.
    """
    if isinstance(difference, Interval):
        is_same = len({*difference.values}) == 1
    else:
        is_same = difference.low == difference.high or isclose(difference.error, difference.samples, abs_tol=1e-12)
    return is_same and difference.mean != 0 and 2.0 ** (1 - difference.seeds) >= ALPHA


def relation_of_p(mean: float, p: float | None, half: float | None = None, margin: float | None = None) -> Relation:
    """The relation that a test shows. half: half of the difference's interval, by which it may be equal."""
    if is_clear(p) and mean:
        return "better" if mean > 0 else "worse"
    is_small = margin is not None and half is not None and abs(mean) + half < margin
    return "equal" if is_small and not is_clear(p) else "open"


@dataclass(frozen=True)
class Verdict:
    """The result of a test of a method against another one on test, by the interval of their paired difference.

    margin: a difference too small to matter, in units of the metric. doubt: why a decided relation is not certain.
    is_withheld: the interval decides only because of an outlying seed.
    """

    method: str
    against: str
    interval: Interval | Bound
    margin: float | None = None
    doubt: str = ""
    is_withheld: bool = False

    @property
    def relation(self) -> Relation:
        return "withheld" if self.is_withheld else relation_of_interval(self.interval, self.margin)

    @property
    def relation_alone(self) -> Relation:
        """The relation before a correction for the number of comparisons."""
        return self.relation

    @property
    def sign(self) -> int:
        """1 if the method is better, -1 if it is worse, else 0."""
        return SIGNS.get(self.relation, 0)

    @property
    def signs_without_doubt(self) -> tuple[int, int]:
        """The sign, and the sign before the correction; both 0 where there is a doubt."""
        return (0, 0) if self.doubt else (self.sign, SIGNS.get(self.relation_alone, 0))

    @property
    def stated(self) -> Relation:
        """The relation as reports state it: a doubt withholds who is better."""
        return "withheld" if self.doubt and self.sign else self.relation
