"""How every method stands in every setting: the record's numbers, read once, as findings, guide and page use them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from fedbench.methods import METHODS, load
from fedbench.methods.base import About
from fedbench.report.leaderboard import OTHER_POINT
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Bound, Relation, relation_of_interval
from fedbench.tasks.metric import MINUS
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.record import FieldRecord

POOLED = "centralized"
"""The model that is trained on the data of all clients, which no federation has: it does not compete."""
PLAIN = {"fedavg": "fedavg", BASELINE: "local training"}
"""Methods that others can become by the values that tuning chooses, or by the setting, and what texts call them."""
SHARED, BASE, OWN = "global", "baseline", "own"
"""Families: methods with one model for all, methods to compare with, and those that are not fedbench's."""


@dataclass(frozen=True)
class Gain:
    """How much better a method is than another on test, as a share, with its simultaneous interval.

    seeds: those behind it. margin: a difference too small to matter. is_withheld: an outlying seed decides it, or there
    is a doubt.
    """

    mean: float
    low: float
    high: float
    seeds: int
    margin: float
    is_withheld: bool

    @property
    def relation(self) -> Relation:
        relation = relation_of_interval(Bound(self.mean, self.low, self.high, np.nan, self.seeds), self.margin)
        return "withheld" if self.is_withheld and relation in ("better", "worse") else relation

    @property
    def is_better(self) -> bool:
        return self.relation == "better"

    @property
    def is_worse(self) -> bool:
        return self.relation == "worse"

    def text(self) -> str:
        """`+3.2 (1.1 to 5.3)`, in points."""
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})".replace("-", MINUS)


@dataclass(frozen=True)
class Standing:
    """A method in a setting.

    score: mean over its seeds, as a share; of methods with other seeds only differences compare (`Field.difference`).
    over_local: None for local training itself. may_be_best: None if it is not judged.
    """

    setting: str
    method: str
    score: float
    seeds: int
    over_local: Gain | None
    may_be_best: bool | None


@dataclass(frozen=True)
class Field:
    """The record as standings."""

    record: FieldRecord

    @cached_property
    def settings(self) -> list[str]:
        """By kind of heterogeneity, then by title, in whatever order they were recorded."""
        return sorted(self.record.settings(), key=lambda name: (self.about(name)["kind"], self.title(name)))

    @cached_property
    def methods(self) -> list[str]:
        """By family, then by the number of settings in which they may be best."""
        best = {m: sum(bool(s.may_be_best) for s in self.of_method(m)) for m in self.record.methods()}
        return sorted(best, key=lambda m: (family_of(m), -best[m], m))

    @property
    def competing(self) -> list[str]:
        return [method for method in self.methods if method != POOLED]

    def about(self, setting: str) -> Mapping[str, Any]:
        return self.record.about[setting]

    def point(self, setting: str) -> str:
        """The point of the scores that are judged."""
        return str(self.about(setting)["point"])

    def title(self, setting: str) -> str:
        return str(self.about(setting)["title"])

    @cached_property
    def _means(self) -> dict[tuple[str, str, str | None, str | None, str], tuple[float, int]]:
        """Mean and number of values by setting, method, against, point and quantity."""
        numbers = self.record.numbers
        keys = ["setting", "method", "against", "point", "quantity"]
        table = numbers.groupby(keys, dropna=False, observed=True)["value"].agg(["mean", "size"])
        return {
            (s, m, _text(a), _text(p), q): (float(mean), int(size))
            for (s, m, a, p, q), mean, size in zip(table.index, table["mean"], table["size"], strict=True)
        }

    def number(
        self, setting: str, method: str, quantity: str, point: str | None = None, against: str | None = None
    ) -> float | None:
        """A number, the mean over seeds where there is one per seed; None if it is not recorded."""
        known = self._means.get((setting, method, against, point, quantity))
        return None if known is None else known[0]

    @cached_property
    def _seeds(self) -> dict[tuple[str, str, str, str], dict[int, float]]:
        """The numbers that are recorded per seed, by setting, method, quantity and point."""
        numbers = self.record.numbers.dropna(subset=["seed", "point"])
        columns = (numbers[name] for name in ("setting", "method", "quantity", "point", "seed", "value"))
        known: dict[tuple[str, str, str, str], dict[int, float]] = defaultdict(dict)
        for setting, method, quantity, point, seed, value in zip(*columns, strict=True):
            known[setting, method, quantity, point][int(seed)] = float(value)
        return dict(known)

    def by_seed(self, setting: str, method: str, quantity: str, point: str) -> Mapping[int, float]:
        """The numbers of the seeds."""
        return self._seeds.get((setting, method, quantity, point), {})

    def gain(self, setting: str, method: str, against: str, point: str | None = None) -> Gain | None:
        """A method's gain over another one; None without a verdict."""
        at = point or self.point(setting)
        names = ("gain", "gain_low", "gain_high", "seeds", "withheld")
        mean, low, high, seeds, withheld = (self.number(setting, method, name, at, against) for name in names)
        if mean is None or low is None or high is None or seeds is None:
            return None
        return Gain(mean, low, high, int(seeds), self.about(setting)["margin"], bool(withheld))

    def difference(self, setting: str, method: str, other: str, quantity: str = "score") -> float | None:
        """How much higher a number of a method is than that of another one, mean over the seeds that both have."""
        both = self._pairs(setting, method, other, self.point(setting), quantity)
        return fmean(ours - theirs for ours, theirs in both) if both else None

    def _pairs(
        self, setting: str, method: str, other: str, point: str, quantity: str = "score"
    ) -> list[tuple[float, float]]:
        """A number of two methods in the seeds that both have."""
        ours, theirs = (self.by_seed(setting, one, quantity, point) for one in (method, other))
        return [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]

    def same_as(self, setting: str, method: str) -> str:
        """The plain method (`PLAIN`) that a method is in a setting; empty if it is none.

        It has its scores, to the bit, in every seed that both have, three at least: at the point that is judged, and
        at the other one of the rounds.
        """
        here = self.point(setting)
        for plain in PLAIN if method not in PLAIN else ():
            pairs = self._pairs(setting, method, plain, here)
            others = self._pairs(setting, method, plain, OTHER_POINT.get(here, here))
            if len(pairs) >= LEAST_SEEDS and all(ours == theirs for ours, theirs in [*pairs, *others]):
                return plain
        return ""

    @cached_property
    def standings(self) -> dict[tuple[str, str], Standing]:
        """By setting and method, of methods with a score."""
        known = {}
        for setting in self.settings:
            for method in self.record.methods():
                score = self._means.get((setting, method, None, self.point(setting), "score"))
                if score is not None:
                    best = self.number(setting, method, "may_be_best", self.point(setting))
                    gain = self.gain(setting, method, BASELINE)
                    may = None if best is None else bool(best)
                    known[setting, method] = Standing(setting, method, *score, gain, may)
        return known

    def of_method(self, method: str) -> list[Standing]:
        return [standing for (_, name), standing in self.standings.items() if name == method]

    def in_setting(self, setting: str) -> list[Standing]:
        """The best first, by the mean difference from local training."""
        known = [standing for (name, _), standing in self.standings.items() if name == setting]
        return sorted(known, key=lambda standing: -(self.difference(setting, standing.method, BASELINE) or 0.0))

    def rivals(self, setting: str) -> list[Standing]:
        """Those that compete, were at work and failed in no seed, the best first."""
        about = self.about(setting)
        others = {POOLED, *about["degenerate"], *about["failed"]}
        return [standing for standing in self.in_setting(setting) if standing.method not in others]

    def judged(self, setting: str) -> list[Standing]:
        """The rivals of which it is said whether they may be the best: no doubt keeps it open."""
        return [standing for standing in self.rivals(setting) if standing.may_be_best is not None]

    def possible_best(self, setting: str) -> list[Standing]:
        """Those above which no other one surely is."""
        return [standing for standing in self.judged(setting) if standing.may_be_best]

    def best_of(self, setting: str, kind: str) -> Standing | None:
        """The best of the methods with one model for all (`shared`) or with personal ones (`personal`)."""
        ours = [one for one in self.rivals(setting) if kind_of(one.method) == kind]
        return ours[0] if ours else None

    def costs_and_gains(self, settings: Sequence[str]) -> dict[str, tuple[float, float]]:
        """By method, mean over settings: processor time in multiples of fedavg-ft's, and gain over local.

        Of the methods that run in all of these settings.
        """
        points = {}
        for method in self.competing:
            pairs = [self._cost_and_gain(setting, method) for setting in settings]
            known = [pair for pair in pairs if pair is not None]
            if known and len(known) == len(pairs):
                points[method] = (fmean(ratio for ratio, _ in known), fmean(gain for _, gain in known))
        return points

    def _cost_and_gain(self, setting: str, method: str) -> tuple[float, float] | None:
        ours, base = (self.number(setting, one, "seconds") for one in (method, FINE_TUNED))
        gain = None if method == BASELINE else self.difference(setting, method, BASELINE)
        return None if not ours or not base or gain is None else (ours / base, gain)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def kind_of(method: str) -> str:
    """`shared`, `personal` or `baseline`; a fine-tuned shared model is personal."""
    family = family_of(method)
    if method == FINE_TUNED:
        return "personal"
    return {SHARED: "shared", BASE: "baseline"}.get(family, "personal")


def family_of(method: str) -> str:
    """The family that `fedbench methods` shows; `own` for methods of others."""
    name = method.split()[0]
    if name not in METHODS.names():
        return OWN
    known: About = load(name).about
    return known.family
