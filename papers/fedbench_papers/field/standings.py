"""How every method stands in every setting: the record's numbers, read once, as findings, guide and page use them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedbench.methods import METHODS, load
from fedbench.methods.base import About
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Bound, Relation, relation_of_interval
from fedbench_papers.field.measures import FINE_TUNED
from fedbench_papers.field.record import FieldRecord

POOLED = "centralized"
"""The model that is trained on the data of all clients, which no federation has: it does not compete."""
SHARED, BASE, OWN = "global", "baseline", "own"
"""Families: methods with one model for all, methods to compare with, and those that are not fedbench's."""


@dataclass(frozen=True)
class Gain:
    """How much better a method is than another on test, as a share, with its simultaneous interval.

    margin: a difference too small to matter. is_withheld: it is decided only with an outlier, or under a doubt.
    """

    mean: float
    low: float
    high: float
    margin: float
    is_withheld: bool

    @property
    def relation(self) -> Relation:
        if self.is_withheld:
            return "withheld"
        return relation_of_interval(Bound(self.mean, self.low, self.high, np.nan, 3), self.margin)

    @property
    def is_better(self) -> bool:
        return self.relation == "better"

    @property
    def is_worse(self) -> bool:
        return self.relation == "worse"

    def text(self) -> str:
        """`+3.2 (1.1 to 5.3)`, in points."""
        if not np.isfinite([self.low, self.high]).all():
            end = f"at most {100 * self.high:+.1f}" if np.isfinite(self.high) else f"at least {100 * self.low:+.1f}"
            return f"{100 * self.mean:+.1f} ({end})"
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


@dataclass(frozen=True)
class Standing:
    """A method in a setting. score: mean over seeds, as a share. over_local: None for local training itself."""

    setting: str
    method: str
    score: float
    seeds: int
    over_local: Gain | None
    may_be_best: bool


@dataclass(frozen=True)
class Field:
    """The record as standings."""

    record: FieldRecord

    @property
    def settings(self) -> list[str]:
        return self.record.settings()

    @cached_property
    def methods(self) -> list[str]:
        """By family, then by the number of settings in which they may be best."""
        best = {m: sum(s.may_be_best for s in self.of_method(m)) for m in self.record.methods()}
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

    def by_seed(self, setting: str, method: str, quantity: str, point: str) -> pd.Series:
        """The numbers of the seeds."""
        numbers = self.record.numbers
        rows = numbers[
            (numbers["setting"] == setting)
            & (numbers["method"] == method)
            & (numbers["quantity"] == quantity)
            & (numbers["point"] == point)
            & numbers["seed"].notna()
        ]
        return rows.set_index("seed")["value"]

    def gain(self, setting: str, method: str, against: str, point: str | None = None) -> Gain | None:
        """A method's gain over another one; None without a verdict."""
        at = point or self.point(setting)
        mean, low, high, withheld = (
            self.number(setting, method, name, at, against) for name in ("gain", "gain_low", "gain_high", "withheld")
        )
        if mean is None or low is None or high is None:
            return None
        return Gain(mean, low, high, self.about(setting)["margin"], bool(withheld))

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
                    known[setting, method] = Standing(setting, method, *score, gain, bool(best))
        return known

    def of_method(self, method: str) -> list[Standing]:
        return [standing for (_, name), standing in self.standings.items() if name == method]

    def in_setting(self, setting: str) -> list[Standing]:
        """The best mean first."""
        known = [standing for (name, _), standing in self.standings.items() if name == setting]
        return sorted(known, key=lambda standing: -standing.score)

    def rivals(self, setting: str) -> list[Standing]:
        """Those that compete, the best mean first."""
        return [standing for standing in self.in_setting(setting) if standing.method != POOLED]

    def best_of(self, setting: str, families: str) -> Standing | None:
        """The best mean of the methods with one model for all (`shared`) or with personal ones (`personal`)."""
        ours = [one for one in self.rivals(setting) if kind_of(one.method) == families]
        return ours[0] if ours else None


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
