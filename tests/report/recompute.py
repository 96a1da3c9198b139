"""Recomputes the page of a comparison of accuracies: python tests/report/recompute.py FOLDER

Every score, interval, p value, mark, colour and verdict of report.html and table.csv is computed again from
clients.parquet, and from the outcomes of test samples where they were kept, by NumPy, pandas and SciPy, following
docs/statistics.md; plan.json says which runs belong to which
method, and which rules were fixed beforehand. Nothing of fedbench is imported. Costs are not checked: clients.parquet
does not hold them. Prints how many numbers agree, and every text that does not.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

LOCAL, POOLED = "local", "centralized"
POINTS = {"after_agg": "after aggregation", "after_fit": "after local training"}
GROUPS = {**POINTS, "global": "global model"}
"""The groups of the final table; not every method has a global model."""
ROTATIONS = 20_000
LOOKS = {5: 0.05, 8: 0.10, 12: 0.20, 18: 0.25, 27: 0.20, 40: 0.10, 60: 0.05, 90: 0.025}
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e-?\d+)?")


# --- what the page says ----------------------------------------------------------------------------------------------


@dataclass
class Table:
    """Its heads, and (group, first cell, other cells with their classes) of every row."""

    heads: list[str] = field(default_factory=list)
    rows: list[tuple[str, str, list[tuple[str, str]]]] = field(default_factory=list)


class Page(HTMLParser):
    """Tables by caption, charts by id, captions of charts, the answer and the lines under it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, Table] = {}
        self.charts: dict[str, Any] = {}
        self.captions: dict[str, str] = {}
        self._table, self._group, self._chart, self._caption = Table(), "", "", ""
        self._text, self._hidden = "", False
        answer = re.search(r'<p class="answer">(.*?)</p>', text, re.S)
        besides = re.search(r'<p class="besides">(.*?)</p>', text, re.S)
        self.answer = plain(answer[1]) if answer else ""
        self.notes = [plain(line) for line in re.findall(r"<span>(.*?)</span>", besides[1], re.S)] if besides else []
        self.feed(re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.S))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("th", "td", "caption", "figcaption"):
            self._text, self._cell = "", found
        if tag == "table":
            self._table, self._group = Table(), ""
        if tag == "tr":
            self._row: list[tuple[str, str]] = []
        self._hidden = found.get("class") == "unseen" and tag != "caption"
        if tag == "script":
            self._chart = str(found.get("data-chart") or "").removeprefix("chart-")

    def handle_data(self, data: str) -> None:
        if self._chart:
            self.charts[self._chart] = json.loads(data)
            self.captions[self._chart] = self._caption
        elif not self._hidden:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        text = plain(self._text)
        if tag == "caption":
            self.tables[text] = self._table
        elif tag == "figcaption":
            self._caption = text
        elif tag == "figure":
            self._caption = ""
        elif tag == "th" and self._cell.get("scope") == "col":
            self._table.heads.append(text)
        elif tag == "th" and self._cell.get("scope") == "rowgroup":
            self._group = text
        elif tag in ("th", "td"):
            self._row.append((text, str(self._cell.get("class") or "")))
        elif tag == "tr" and len(self._row) > 1:
            (name, _), *cells = self._row
            self._table.rows.append((self._group, name, cells))
        self._chart, self._hidden = "", False


def plain(text: str) -> str:
    """Without markup and with simple characters."""
    text = re.sub(r"<[^>]*>", "", text)
    for found, put in {"\u2212": "-", "\u00a0": " ", "&lt;": "<", "&gt;": ">", "&amp;": "&", "&#39;": "'"}.items():
        text = text.replace(found, put)
    return " ".join(text.split())


# --- what the records say --------------------------------------------------------------------------------------------


class Records:
    """Accuracies of a comparison's final runs."""

    def __init__(self, folder: Path) -> None:
        self.plan = json.loads((folder / "plan.json").read_text())
        finals = [entry for entry in self.plan["entries"] if entry["role"] == "final"]
        self.labels = list(dict.fromkeys(entry["label"] for entry in finals))
        self.failed = {(entry["label"], entry["seed"]) for entry in finals if entry["status"] == "failed"}
        self.point = self.plan["point"]
        self.rows = {}
        self.samples: dict[tuple[str, str], pd.DataFrame] = {}
        for label in self.labels:
            paths = {entry["path"]: None for entry in finals if entry["label"] == label and entry["status"] == "done"}
            read = [pd.read_parquet(folder / path / "clients.parquet") for path in paths]
            if read:
                frame = pd.concat(read)
                self.rows[label] = frame[frame["metric"] == "accuracy"]
                for point in GROUPS:
                    self._read_samples(label, point, [folder / path for path in paths])
        self.last = cache(self._last)
        self.part = cache(self._part)

    def at(self, label: str, point: str, split: str = "test") -> pd.DataFrame:
        """Columns seed, round, client, value, n."""
        rows = self.rows[label]
        return rows[(rows["point"] == point) & (rows["split"] == split)]

    def _last(self, label: str, point: str) -> pd.DataFrame:
        """At the last round of every seed."""
        rows = self.at(label, point)
        return rows[rows["round"] == rows.groupby("seed")["round"].transform("max")]

    def seeds(self, label: str, point: str | None = None) -> pd.Series:
        """Mean over the clients of every seed at the last round."""
        return self.last(label, point or self.point).groupby("seed")["value"].mean()

    def chosen(self, label: str, point: str, split: str) -> pd.Series:
        """The same at the round of every seed with the best mean on a split."""
        means = {
            part: self.at(label, point, part).groupby(["seed", "round"])["value"].mean() for part in ("test", split)
        }
        best = means[split].groupby("seed").idxmax()
        return means["test"].loc[best.tolist()]

    def pairs(self, label: str, other: str, point: str | None = None) -> pd.Series:
        """The differences of the clients of two methods."""
        at = point or self.point
        theirs = self.last(other, at if len(self.at(other, at)) else "after_agg")
        ours, theirs = (rows.set_index(["seed", "client"])["value"] for rows in (self.last(label, at), theirs))
        return (ours - theirs).dropna().round(12)

    def _read_samples(self, label: str, point: str, runs: list[Path]) -> None:
        """What every test sample had, columns seed, client, unit, value."""
        found = []
        for path in [path for run in runs for path in sorted((run / "outcomes").glob("seed-*.npz"))]:
            held = np.load(path)
            if f"{point}/rows" in held:
                unit = held[f"{point}/groups"] if f"{point}/groups" in held else held[f"{point}/rows"]
                columns = {"client": held[f"{point}/clients"], "unit": unit, "value": held[f"{point}/each/accuracy"]}
                found.append(pd.DataFrame({"seed": int(path.stem[5:]), **columns}))
        if found:
            self.samples[label, point] = pd.concat(found).astype({"value": float})

    def _moved(self, label: str, point: str, pairs: tuple[tuple[int, int], ...]) -> pd.DataFrame:
        """By how much each unit (rows) moves the score of each seed (columns). pairs: seeds and clients that count."""
        own = self.samples[label, point].set_index(["seed", "client"])
        own = own[own.index.isin(pairs)].reset_index()
        client = own.groupby(["seed", "client"])["value"]
        mean, size = client.transform("mean"), client.transform("size")
        together = own.groupby(["seed", "client", "unit"])["value"].transform("size")
        whole = own["seed"].map(client.mean().groupby("seed").mean())
        away = (own["value"] - mean) / (size - together).clip(lower=1)  # from the mean of the others, over the size
        own["moved"] = np.where(together == size, (mean - whole) / size, away)
        own["moved"] /= own["seed"].map(own.groupby("seed")["client"].nunique())
        return own.pivot_table(index="unit", columns="seed", values="moved", aggfunc="sum", fill_value=0.0)

    def _part(self, label: str, other: str | None, point: str, pairs: tuple[tuple[int, int], ...]) -> "Part":
        """What shared test samples add to the variance of a mean, or of a difference, and its degrees of freedom."""
        at = point if other is None or (other, point) in self.samples else "after_agg"
        seeds = {seed for seed, _ in pairs}
        known = [(label, point), *([] if other is None else [(other, at)])]
        if len(seeds) < 2 or any(k not in self.samples or seeds - {*self.samples[k]["seed"]} for k in known):
            return None
        table = self._moved(*known[0], pairs)
        if other is not None:
            table = table.sub(self._moved(*known[1], pairs), fill_value=0.0)
        return shared_part(table.to_numpy())

    def part_of(self, label: str, point: str | None = None) -> "Part":
        last = self.last(label, point or self.point)
        return self.part(label, None, point or self.point, tuple(zip(last["seed"], last["client"], strict=True)))

    def part_between(self, label: str, other: str, point: str | None = None) -> "Part":
        return self.part(label, other, point or self.point, tuple(self.pairs(label, other, point).index))

    def first_part(self, label: str, other: str, seeds: int) -> float:
        """The variance that samples add to the difference of two methods over the first seeds; each has its clients."""
        tables = []
        for name in (label, other):
            last = self.last(name, self.point if len(self.at(name, self.point)) else "after_agg")
            own = last[last["seed"] < seeds]
            point = str(own["point"].iloc[0])
            if (name, point) not in self.samples:
                return 0.0
            tables.append(self._moved(name, point, tuple(zip(own["seed"], own["client"], strict=True))))
        return shared_part(tables[0].sub(tables[1], fill_value=0.0).to_numpy())[0]

    def budget(self, label: str) -> int:
        """The number of points that were tried, without those beside the best one."""
        tried = [json.dumps(entry["values"]) for entry in self.plan["entries"] if self._is_candidate(entry, label)]
        return max(1, len(set(tried)) - self.plan["beside_best"].get(label, 0))

    @staticmethod
    def _is_candidate(entry: dict[str, Any], label: str) -> bool:
        return entry["role"] == "candidate" and entry["label"] == label

    def in_doubt(self, label: str, other: str, gain: float) -> bool:
        """Whether a difference may come from unequal tuning or failed runs."""
        unequal = not self.plan["budgets"] and self.budget(label) != self.budget(other)
        failed = any(name in (label, other) for name, _ in self.failed)
        loser = other if gain >= 0 else label
        return unequal or failed or any(self.plan[kind].get(loser) for kind in ("ends", "untried"))


# --- statistics ------------------------------------------------------------------------------------------------------


Part = tuple[float, float] | None
"""The variance that shared test samples add, and its degrees of freedom; None without outcomes."""


def shared_part(moved: np.ndarray) -> tuple[float, float]:
    """The mean covariance of two seeds through the units that they share. moved: `[units, seeds]`."""
    seeds = moved.shape[1]
    if seeds < 2:
        return 0.0, 1.0
    each = (moved.sum(1) ** 2 - (moved**2).sum(1)) / (seeds * (seeds - 1))
    total = each.sum()
    return (float(total), max(1.0, 2 * total**2 / (each**2).sum())) if total > 0 else (0.0, 1.0)


def both_errors(values: np.ndarray, part: tuple[float, float]) -> tuple[float, float]:
    """The standard error over seeds and samples, and Satterthwaite's degrees of freedom."""
    (more, k), own = part, float(stats.sem(values)) ** 2
    dof = (own + more) ** 2 / (own**2 / (len(values) - 1) + more**2 / k) if own + more else len(values) - 1.0
    return float(np.sqrt(own + more)), dof


def mean_and_half(values: Sequence[float] | pd.Series, part: Part = None) -> tuple[float, float | None]:
    """Mean and half of the 95 % interval by Student's t, over test samples too if what they add is given."""
    own = np.asarray(values, dtype=float)
    if len(own) < 2:
        return float(own.mean()), None
    half = float(stats.sem(own) * stats.t.ppf(0.975, len(own) - 1))
    if part is not None:
        error, dof = both_errors(own, part)
        half = max(half, float(error * stats.t.ppf(0.975, dof)))
    return float(own.mean()), half


def ends_within_one(mean: float, half: float) -> tuple[float, float]:
    """The ends of a score's interval: Wilson's where Student's would not stay within 0 and 1."""
    if mean - half >= 0 and mean + half <= 1:
        return mean - half, mean + half
    if not 0 < mean < 1:
        return max(0.0, mean - half), min(1.0, mean + half)
    w = half**2 / (mean * (1 - mean))
    low, high = sorted(np.roots([1 + w, -(2 * mean + w), mean**2]).real)
    return max(0.0, float(low)), min(1.0, float(high))


def worst(values: pd.Series) -> float:
    return float(np.sort(values)[: int(np.ceil(len(values) / 10))].mean())


def wilson(shares: pd.Series) -> tuple[float, float, float]:
    """Mean share, and the ends where (mean - p)^2 = t^2 p (1 - p) / m; m gives the standard error over seeds."""
    mean, half = mean_and_half(shares)
    if half is None:
        return mean, np.nan, np.nan
    if half == 0 or not 0 < mean < 1:
        return mean, mean - half, mean + half
    w = half**2 / (mean * (1 - mean))
    low, high = sorted(np.roots([1 + w, -(2 * mean + w), mean**2]).real)
    return mean, max(0.0, float(low)), min(1.0, float(high))


@cache
def directions(n: int) -> np.ndarray:
    drawn = np.random.default_rng(n).standard_normal((n, ROTATIONS))
    return drawn / np.sqrt((drawn**2).sum(0))


def largest(columns: np.ndarray, two_sided: bool = True) -> np.ndarray:
    """The largest correlation of the columns `[n, k]` with every random direction."""
    lengths = np.linalg.norm(columns, axis=0)
    known = columns[:, lengths > 1e-11] / lengths[lengths > 1e-11]
    found = known.T @ directions(len(columns)) if known.size else directions(len(columns))[:1]
    return (np.abs(found) if two_sided else found).max(0)


def critical(differences: np.ndarray, level: float, two_sided: bool = True) -> float:
    """What the largest t of these differences `[n, k]` exceeds by chance with this probability."""
    found = np.sort(largest(differences - differences.mean(0), two_sided))
    r = found[-max(1, round(level * ROTATIONS))]
    return float(r * np.sqrt((len(differences) - 1) / (1 - r**2)))


def error_of(differences: np.ndarray, more: float = 0.0) -> float:
    """Standard error; that of a constant difference is as if one seed had none. more: variance from test samples."""
    spread = np.ptp(differences)
    own = stats.sem(differences) if spread > 1e-11 else abs(differences.mean()) / (len(differences) - 1)
    return float(np.sqrt(own**2 + more))


def t_test(differences: np.ndarray, part: Part = None) -> float:
    if np.ptp(differences) == 0:
        p = 1.0 if differences[0] == 0 else 2.0 ** (1 - len(differences))
    else:
        p = float(stats.ttest_1samp(differences, 0).pvalue)
    if part is None or not part[0]:
        return p
    error, dof = both_errors(np.where(np.ptp(differences) == 0, differences.mean(), differences), part)
    return max(p, float(2 * stats.t.sf(abs(differences.mean()) / error, dof)))


def adjusted(columns: Sequence[np.ndarray], parts: Sequence[Part]) -> list[float]:
    """p of every difference, corrected for their number step by step; by Holm if they have different seeds."""
    alone = [t_test(own, part) for own, part in zip(columns, parts, strict=True)]
    if len(columns) == 1:
        return alone
    if len({len(own) for own in columns}) > 1:
        order, found, so_far = np.argsort(alone), np.ones(len(alone)), 0.0
        for place, i in enumerate(order):
            so_far = max(so_far, min(1.0, alone[i] * (len(alone) - place)))
            found[i] = so_far
        return found.tolist()
    values = np.array(columns).T
    errors = [error_of(own, part[0] if part else 0.0) for own, part in zip(columns, parts, strict=True)]
    seen = np.array([abs(own.mean()) / e if e else 0.0 for own, e in zip(columns, errors, strict=True)])
    r, found, so_far = seen / np.sqrt(len(values) - 1 + seen**2), np.ones(len(columns)), 0.0
    for place, i in enumerate(order := np.argsort(-seen, kind="stable")):
        chance = largest(values[:, order[place:]]) if np.any(values[:, order[place:]]) else np.zeros(ROTATIONS)
        so_far = max(so_far, (1 + np.count_nonzero(chance >= r[i] - 1e-7)) / (1 + ROTATIONS))
        found[i] = max(so_far, alone[i])
    return found.tolist()


def seeds_needed(differences: np.ndarray, comparisons: int, more: float) -> int | None:
    """The smallest number of seeds with a power of 80 %. more: the variance from test samples, which stays."""
    if np.ptp(differences) == 0 or differences.mean() == 0:
        return None
    for n in range(3, 1001):
        effect = abs(differences.mean()) / np.sqrt(differences.var(ddof=1) + n * more)
        limit = stats.t.isf(0.025 / comparisons, n - 1)
        if stats.nct.sf(limit, n - 1, min(500.0, effect * np.sqrt(n))) >= 0.8:
            return n
    return None


@dataclass
class Difference:
    """Two methods: seeds' differences, clients' differences, corrected p and the number of comparisons."""

    other: str
    values: np.ndarray
    pairs: pd.Series
    part: Part = None
    p: float | None = None
    comparisons: int = 1

    @property
    def decided(self) -> bool:
        return self.p is not None and self.p < 0.05

    @property
    def decided_alone(self) -> bool:
        """By a t test of its own; values without spread are told by their signs."""
        return len(self.values) > 2 and t_test(self.values, self.part) < 0.05

    @cached_property
    def resampled(self) -> tuple[float, float]:
        """95 % interval over resampled seeds and clients, with draws of its own."""
        rng, seeds = np.random.default_rng(123), [own.to_numpy() for _, own in self.pairs.groupby("seed")]
        means = [own[rng.integers(len(own), size=(len(seeds), ROTATIONS, len(own)))].mean(-1) for own in seeds]
        picked = rng.integers(len(seeds), size=(len(seeds), ROTATIONS))
        each = np.stack(means)[picked, np.arange(len(seeds))[:, None], np.arange(ROTATIONS)]
        low, high = np.quantile(each.mean(0), [0.025, 0.975])
        return float(low), float(high)

    @cached_property
    def needed(self) -> int | None:
        """Seeds with a power of 80 %; known once the comparisons are."""
        return seeds_needed(self.values, self.comparisons, self.part[0] if self.part else 0.0)

    @property
    def no_seeds(self) -> bool:
        """Whether no number of seeds would show it."""
        if self.decided or self.part is None:
            return False
        limit = stats.norm.isf(0.025 / self.comparisons) + stats.norm.ppf(0.8)
        return bool(0 < abs(self.values.mean()) < limit * np.sqrt(self.part[0]))


def differences(records: Records, asked: list[tuple[str, str]]) -> list[Difference]:
    found = []
    for label, other in asked:
        pairs = records.pairs(label, other)
        values, part = pairs.groupby("seed").mean().round(12).to_numpy(), records.part_between(label, other)
        found.append(Difference(other, values, pairs, part))
    tested = [own for own in found if len(own.values) > 2]
    all_p = adjusted([own.values for own in tested], [own.part for own in tested]) if tested else []
    for own, p in zip(tested, all_p, strict=True):
        own.p, own.comparisons = p, len(tested)
    return found


# --- a sequential test ------------------------------------------------------------------------------------------------


@dataclass
class Bound:
    mean: float
    low: float
    high: float
    error: float
    n: int
    more: float = 0.0


class SequentialTest:
    """Verdicts after all looks whose seeds are there."""

    def __init__(
        self, scores: dict[str, np.ndarray], margin: float, most: int, more: Callable[[str, str, int], float]
    ) -> None:
        self.scores, self.margin, self.more = scores, margin, cache(more)
        self.looks = [(n, 0.025 * share) for n, share in LOOKS.items() if n <= most]
        self.against: dict[str, tuple[str, Bound]] = {}
        self.left = [label for label in scores if label != LOCAL] if LOCAL in scores else []
        self.given_up: list[str] = []
        self.withheld: dict[str, str] = {}
        self.candidates, self.out = list(scores), dict[str, Bound]()
        self.ending, self.behind = "", dict[str, Bound]()
        self.seeds: dict[str, int] = {}
        self.needs, self.look = 0, 0
        for n, level in self.looks:
            wanted = [label for label in self.left if label not in self.given_up]
            running = {*wanted, *([LOCAL] if wanted else []), *([] if self.ending else self.candidates)}
            if running <= {LOCAL}:
                break
            if any(len(scores[label]) < n for label in running):
                self.needs, self.waiting = n, len(running)
                break
            self.look = n
            self.seeds |= dict.fromkeys(running, n)
            if wanted:
                self._over_local(wanted, n, level)
            if not self.ending:
                self._best(n, level)

    def _difference(self, label: str, other: str, n: int) -> np.ndarray:
        return np.round(np.round(self.scores[label][:n], 12) - np.round(self.scores[other][:n], 12), 12)

    def _bound(self, label: str, other: str, n: int, c: float, cautious: bool = True) -> Bound:
        """The interval; a cautious one holds without outlying seeds as well."""
        values, more = self._difference(label, other, n), self.more(*sorted((label, other)), n)
        mean, error = float(values.mean()), error_of(values, more)
        ends = [mean - c * error, mean + c * error]
        away = np.abs(values - np.median(values))
        kept = values[(away <= 5 * np.median(away)) | (np.median(away) == 0)]
        if cautious and len(kept) < n:
            own = np.sqrt(stats.sem(kept) ** 2 + more)
            ends += [kept.mean() - c * own, kept.mean() + c * own]
        return Bound(mean, float(min(ends)), float(max(ends)), error, n, more)

    def _verdict(self, bound: Bound) -> str:
        if bound.low > 0:
            return "better"
        if bound.high < 0:
            return "worse"
        return "equal" if max(-bound.low, bound.high) < self.margin else ""

    def _over_local(self, wanted: list[str], n: int, level: float) -> None:
        family = len(self.left)
        c = critical(np.array([self._difference(label, LOCAL, n) for label in wanted]).T, level * len(wanted) / family)
        for label in wanted:
            bound = self._bound(label, LOCAL, n, c)
            word, bare = self._verdict(bound), self._verdict(self._bound(label, LOCAL, n, c, cautious=False))
            self.withheld.pop(label, None)
            self.against[label] = word or ("withheld" if bare else "open"), bound
            if word:
                self.left.remove(label)
            elif bare:
                self.withheld[label] = bare
            elif 12 <= n < self.looks[-1][0] and self._chance(bound, 2 * family, "<0=>") < 0.2:
                self.given_up.append(label)
                self.against[label] = "given up", bound

    def _best(self, n: int, level: float) -> None:
        before = list(self.candidates)
        if len(before) > 1:
            against = {m: [other for other in before if other != m] for m in before}
            c = {
                m: critical(np.array([self._difference(o, m, n) for o in others]).T, level, two_sided=False)
                for m, others in against.items()
            }
            bounds = {(o, m): self._bound(o, m, n, c[m]) for m, others in against.items() for o in others}
            for m, others in against.items():
                ahead = max((bounds[o, m] for o in others), key=lambda bound: bound.low)
                if ahead.low > 0:
                    self.out[m] = Bound(-ahead.mean, -np.inf, -ahead.low, ahead.error, n)
            means = {m: float(self.scores[m][:n].mean()) for m in before}
            self.candidates = sorted([m for m in before if m not in self.out], key=lambda m: (-means[m], m))
            leader, *rest = self.candidates
            high = -min((bounds[leader, o].low for o in rest), default=0.0)
            self.behind = {}
            for m in rest:
                own = self._bound(m, leader, n, c[leader])
                low = min(bounds[m, o].low for o in self.candidates if o != m)
                self.behind[m] = Bound(own.mean, low, high, own.error, n, own.more)
        within = all(bound.high < self.margin for bound in self.behind.values())
        if len(self.candidates) == 1:
            self.ending = "winner"
        elif within and all(bound.low > -self.margin for bound in self.behind.values()):
            self.ending = "tie"
        elif n < self.looks[-1][0]:
            # Go on while a decision is likely enough for the least likely candidate.
            decided, near = (
                min(self._chance(b, len(self.behind), k) for b in self.behind.values()) for k in ("<=", "<=0")
            )
            if n >= 12 and decided < 0.2 and (within or near < 0.2):
                self.ending = "within" if within else "open"
        else:
            self.ending = "within" if within else "open"

    def _chance(self, bound: Bound, contrasts: int, kind: str) -> float:
        """The probability that the mean at the maximum is told from 0, above or below, or equal."""
        most, level = self.looks[-1]
        variance = max(0.0, bound.error**2 - bound.more) * bound.n
        spread = max(1e-12, np.sqrt(variance * max(0.0, 1 / bound.n - 1 / most)))
        half = stats.t.ppf(1 - level / contrasts, most - 1) * np.sqrt(variance / most + bound.more)

        def below(x: float) -> float:
            return float(stats.norm.cdf((x - bound.mean) / spread))

        inside = max(0.0, self.margin - half)
        if kind == "<=0":
            return below(self.margin - half)
        chance = below(-half) + below(inside) - below(-inside)
        return min(1.0, chance + (1 - below(half) if kind == "<0=>" else 0.0))


# --- the comparison of both ------------------------------------------------------------------------------------------


@dataclass
class Check:
    """Counts what agrees, and lists what does not."""

    numbers: int = 0
    texts: int = 0
    wrong: list[str] = field(default_factory=list)

    def text(self, what: str, shown: str, expected: str, slack: float = 0.0) -> None:
        """Words must be the same, numbers the same up to the rounding of what is shown.

        Whole numbers must be equal. slack: more room, for intervals by other random draws.
        """
        shown, expected = plain(shown), plain(expected)
        pairs = list(zip(NUMBER.findall(shown), NUMBER.findall(expected), strict=False))
        same = NUMBER.sub("#", shown) == NUMBER.sub("#", expected) and all(near(*pair, slack) for pair in pairs)
        self.texts += 1
        self.numbers += len(pairs)
        if not same:
            self.wrong.append(f"{what}: {shown!r} instead of {expected!r}")

    def value(self, what: str, shown: Any, expected: float | None, slack: float = 1e-6) -> None:
        """A number of a file."""
        self.numbers += 1
        if expected is None or np.isnan(expected):
            same = pd.isna(shown)
        else:
            same = shown == expected or abs(shown - expected) <= slack
        if not same:
            self.wrong.append(f"{what}: {shown} instead of {expected}")


def near(shown: str, expected: str, slack: float) -> bool:
    if "." not in expected:
        return shown == expected
    decimals = len(shown.partition(".")[2])
    return abs(float(shown) - float(expected)) <= 0.5 * 10.0**-decimals + 2e-4 * (decimals < 3) + slack


def number(value: float) -> str:
    return f"{100 * value:.7f}"


def signed(value: float) -> str:
    return f"{100 * value:+.7f}"


def plus_minus(values: Sequence[float] | pd.Series, form: Callable[[float], str] = number, part: Part = None) -> str:
    """A mean with half of its interval, or of a score with both ends if they are lopsided."""
    mean, half = mean_and_half(values, part)
    if half is None:
        return form(mean)
    low, high = ends_within_one(mean, half)
    if form is number and not np.isclose(high - mean, half):
        return f"{number(mean)} ({number(low)} to {number(high)})"
    return f"{form(mean)} ± {number(half)}"


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.7f}"


def listed(names: list[str]) -> str:
    shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} others"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def check(folder: Path, html: str | None = None) -> Check:
    """Compares the page and the table of a comparison with its records. html: of another page."""
    found, records = Check(), Records(folder)
    page = Page((folder / "report.html").read_text() if html is None else html)
    table = pd.read_csv(folder / "table.csv").set_index("method")
    shown = [label for label in records.labels if label in records.rows]
    means = {label: float(records.seeds(label).mean()) for label in shown}
    rules = records.plan["stopping_rule"]
    check_scores(found, page, table, records, shown)
    check_final_table(found, page, records, shown)
    check_charts(found, page, records, shown)
    if rules:
        test = sequential_test_of(records, rules)
        check_sequential_test(found, page, table, records, test)
    else:
        order = sorted(shown, key=lambda label: (label == POOLED, -means[label]))
        check_comparison(found, page, table, records, order)
    return found


def cells_of(page: Page) -> Iterator[tuple[str, dict[str, tuple[str, str]]]]:
    board = page.tables["Leaderboard"]
    for _, name, cells in board.rows:
        if cells[0][0] != "failed":
            yield name.split(" (")[0], dict(zip(board.heads[1:], cells, strict=True))


def check_scores(found: Check, page: Page, table: pd.DataFrame, records: Records, labels: list[str]) -> None:
    """Columns on a method alone."""
    sequential = records.plan["stopping_rule"] is not None
    other = next(point for point in POINTS if point != records.point)
    competing = pd.DataFrame({m: records.seeds(m) for m in labels if m != POOLED}).dropna().round(12)
    ranks = competing.rank(axis=1, ascending=False)
    if {name for name, _ in cells_of(page)} != set(labels):
        found.wrong.append("methods of the leaderboard")
    for label, cells in cells_of(page):
        last, seeds = records.last(label, records.point), records.seeds(label)
        tenths = last.groupby("seed")["value"].agg(worst)
        spread = float(last.groupby("seed")["value"].std(ddof=0).mean())
        pooled = (last["value"] * last["n"]).groupby(last["seed"]).sum() / last.groupby("seed")["n"].sum()
        part = records.part_of(label)
        mean, half = mean_and_half(seeds, part)
        texts = {
            "score": number(mean) if sequential else plus_minus(seeds, part=part),
            "sd": "" if half is None else number(seeds.std()),
            "pooled": number(pooled.mean()),
            other.replace("_", " "): number(records.seeds(label, other).mean()),
            worst_head(last): number(tenths.mean()) if sequential else plus_minus(tenths),
            "client sd": number(spread),
        }
        for head, expected in texts.items():
            if head in cells or expected:
                found.text(f"{label}, {head}", cells.get(head, ("", ""))[0].removesuffix(" ="), expected)
        row = table.loc[label]
        own = {"mean": mean, "pooled": pooled.mean(), "worst_tenth": tenths.mean(), "spread": spread}
        own |= {"seeds": len(seeds), "sd": seeds.std(), "rank": ranks.mean().get(label)}
        own |= {other: records.seeds(label, other).mean()}
        for name, values, more in (("", seeds, part), ("worst_tenth_", tenths, None)):
            middle, width = mean_and_half(values, more)
            low, high = (np.nan, np.nan) if width is None else ends_within_one(middle, width)
            own |= {f"{name}low": low, f"{name}high": high}
        for column, expected in own.items():
            found.value(f"table.csv, {label}, {column}", row[column], expected)


def worst_head(last: pd.DataFrame) -> str:
    """The head of the mean of the worst tenth. last: a row per seed and client, as many of every seed."""
    count = last.groupby("seed").size().max()
    return "worst client" if count <= 10 else f"worst 2 of {count} clients" if count < 20 else "worst tenth"


def check_final_table(found: Check, page: Page, records: Records, labels: list[str]) -> None:
    """The table of both points and all choices of the round."""
    board = page.tables["Final table"]
    known = {(words, label) for point, words in GROUPS.items() for label in labels if len(records.at(label, point))}
    if {(group, name.split(" (")[0]) for group, name, _ in board.rows} != known:
        found.wrong.append("rows of the final table")
    for group, name, cells in board.rows:
        label = name.split(" (")[0]
        point = next(point for point, words in GROUPS.items() if words == group)
        last, seeds = records.last(label, point), records.seeds(label, point)
        tenths = last.groupby("seed")["value"].agg(worst)
        pooled = (last["value"] * last["n"]).groupby(last["seed"]).sum() / last.groupby("seed")["n"].sum()
        texts = {
            "last round": plus_minus(seeds, part=records.part_of(label, point)),
            "sd": number(seeds.std()) if len(seeds) > 1 else "",
            "pooled": number(pooled.mean()),
            worst_head(last): plus_minus(tenths),
            "client sd": number(last.groupby("seed")["value"].std(ddof=0).mean()),
            "over local": "",
            "clients that gain": "",
            "best-val round": plus_minus(records.chosen(label, point, "val")),
            "best on test*": number(records.chosen(label, point, "test").mean()),
        }
        if label != LOCAL and LOCAL in records.rows:
            pairs = records.pairs(label, LOCAL, point)
            part = records.part_between(label, LOCAL, point)
            texts["over local"] = plus_minus(pairs.groupby("seed").mean(), signed, part)
            texts["clients that gain"] = f"{100 * (pairs > 0).groupby('seed').mean().mean():.7f} %"
        for head, (text, _) in zip(board.heads[1:], cells, strict=True):
            found.text(f"final table, {label} {group}, {head}", text, texts[head])


def check_charts(found: Check, page: Page, records: Records, labels: list[str]) -> None:
    """Curves over rounds, and the gains of clients."""
    for point in POINTS:
        curves = {t["name"]: t for t in page.charts[f"curve-{point}"]["data"] if "name" in t and "fill" not in t}
        for label in labels:
            each = records.at(label, point).groupby(["seed", "round"])["value"].mean()
            for number_, value in zip(curves[label]["x"], curves[label]["y"], strict=True):
                mean = 100 * each.xs(number_, level="round").mean()
                found.value(f"curve of {label} {point}, round {number_}", value, mean, 6e-5 * abs(mean))
    check_methods(found, page, "gains", {*labels} - {LOCAL} if LOCAL in labels else ())
    for label, *shown, share in rows_of(page, "gains"):
        gains = 100 * records.pairs(label, LOCAL)
        for value, quantile in zip(shown, (0, 0.25, 0.5, 0.75, 1), strict=True):
            expected = gains.quantile(quantile)
            found.value(f"gains of {label}, {quantile}", value, expected, 6e-5 * abs(expected) + 1e-9)
        found.text(f"gains of {label}", share, f"{100 * (gains > 0).mean():.7f} %")


def rows_of(page: Page, chart: str) -> list[list[Any]]:
    """The values of a chart; none without it."""
    return page.charts[chart]["layout"]["meta"]["table"]["rows"] if chart in page.charts else []


def check_methods(found: Check, page: Page, chart: str, expected: Iterable[str]) -> None:
    """Whether a chart has a row for each of these methods."""
    shown = [row[0] for row in rows_of(page, chart)]
    if set(shown) != set(expected):
        found.wrong.append(f"{chart}: {shown} instead of {sorted(expected)}")


def tone_of(records: Records, label: str, gain: float, decided: bool, alone: bool = False) -> str:
    """Better or worse than local training, if that was decided, or alone by its own test, and is not in doubt."""
    if label in (LOCAL, POOLED):
        return "baseline"
    if not (decided or alone) or records.in_doubt(label, LOCAL, gain):
        return "open"
    return ("above" if gain > 0 else "below") + ("" if decided else "-alone")


def check_comparison(found: Check, page: Page, table: pd.DataFrame, records: Records, order: list[str]) -> None:
    """Differences, p values, marks, colours and the answer with a fixed number of seeds."""
    best, rivals = order[0], [label for label in order[1:] if label != POOLED]
    local = dict(
        zip(others := [m for m in order if m != LOCAL], differences(records, [(m, LOCAL) for m in others]), strict=True)
    )
    behind = dict(zip(rivals, differences(records, [(best, m) for m in rivals]), strict=True))
    shared = best if best != LOCAL else ""
    for mine, theirs in [(local[shared], behind[LOCAL])] if shared else [(local[m], behind[m]) for m in rivals]:
        if mine.p is not None and theirs.p is not None:
            mine.p = theirs.p = max(mine.p, theirs.p)
            mine.comparisons = theirs.comparisons = max(mine.comparisons, theirs.comparisons)
    if [label for label, _ in cells_of(page)] != order:
        found.wrong.append("order of the leaderboard")
    for label, cells in cells_of(page):
        gain, lag, row = local.get(label), behind.get(label), table.loc[label]
        texts = {"over local": "", "p (adjusted)": "", "better off": ""}
        if gain is not None:
            mean, low, high = wilson((gain.pairs > 0).groupby("seed").mean())
            alone = len(gain.values) < 2 or np.isclose(low, high, rtol=1e-9, atol=0)
            ends = "" if alone else f" ({100 * low:.7f} to {100 * high:.7f})"
            texts = {
                "over local": plus_minus(gain.values, signed, gain.part),
                "p (adjusted)": "" if gain.p is None else p_text(gain.p),
                "better off": f"{100 * mean:.7f} %{ends}",
            }
            for column, expected in (("better_off", mean), ("better_off_low", low), ("better_off_high", high)):
                found.value(f"table.csv, {label}, {column}", row[column], expected)
        for head, expected in texts.items():
            if head in cells or expected:
                found.text(f"{label}, {head}", cells.get(head, ("", ""))[0], expected)
        tied = lag is not None and not lag.decided
        found.text(f"{label}, mark", " =" * cells["score"][0].endswith(" ="), " =" * tied)
        mean = 0.0 if gain is None else float(gain.values.mean())
        states = (False, False) if gain is None else (gain.decided, gain.decided_alone)
        found.text(f"{label}, colour", cells["score"][1], tone_of(records, label, mean, *states))
        found.text(f"table.csv, {label}, tied_with_best", str(row["tied_with_best"]), str(tied))
        for name, own in (("over_local", gain), ("best_ahead", lag)):
            check_difference(found, f"table.csv, {label}", name, row, own)
    check_methods(found, page, "forest", local)
    if "behind" in page.charts or ({*behind} - {LOCAL} and best != LOCAL):
        check_methods(found, page, "behind", behind)
    for chart, known in (("forest", local), ("behind", behind)):
        for label, *texts in rows_of(page, chart):
            for text, (expected, slack) in zip(texts, chart_texts(known[label]), strict=True):
                found.text(f"{chart}, {label}", text, expected, slack)
    check_words(found, page, records, best, local, behind)


def check_difference(found: Check, what: str, name: str, row: pd.Series, own: Difference | None) -> None:
    """The columns of a difference in table.csv."""
    if own is None:
        found.value(f"{what}, {name}", row[name], None)
        return
    mean, half = mean_and_half(own.values, own.part)
    found.value(f"{what}, {name}", row[name], mean)
    if half is None:
        return
    for column, expected in ((f"{name}_low", mean - half), (f"{name}_high", mean + half)):
        found.value(f"{what}, {column}", row[column], expected)
    low, high = own.resampled
    for column, expected in ((f"{name}_resampled_low", low), (f"{name}_resampled_high", high)):
        found.value(f"{what}, {column}", row[column], expected, 0.08 * (high - low))
    found.value(f"{what}, {name}_p_adjusted", row[f"{name}_p_adjusted"], own.p, 2e-4)
    if own.p is not None:
        found.value(f"{what}, {name}_resolves", row[f"{name}_resolves"], half)
        needed = own.needed
        found.value(f"{what}, {name}_seeds_needed", row[f"{name}_seeds_needed"], needed)


def chart_texts(own: Difference) -> list[tuple[str, float]]:
    """Difference, both intervals, p, resolution and seeds needed, and the room that random draws need."""
    mean, half = mean_and_half(own.values, own.part)
    if half is None:
        return [(signed(mean), 0.0)] + [("", 0.0)] * 5
    low, high = own.resampled
    known = own.p is not None
    needed = own.needed if known else None
    return [
        (signed(mean), 0.0),
        (f"{signed(mean - half)} to {signed(mean + half)}", 0.0),
        (f"{signed(low)} to {signed(high)}", 8 * (high - low)),
        (p_text(own.p) if own.p is not None else "", 2e-4),
        (number(half) if known else "", 0.0),
        (str(needed or ""), 0.0),
    ]


def check_words(
    found: Check, page: Page, records: Records, best: str, local: dict[str, Difference], behind: dict[str, Difference]
) -> None:
    """The answer, and who is better than local training."""
    if not behind:
        return
    second, lead = next(iter(behind.items()))
    mean, half = mean_and_half(lead.values, lead.part)
    n = len(records.seeds(best))
    span = (
        f"95 % interval {signed(mean - half)} to {signed(mean + half)}"
        if half is not None
        else "one seed, so no interval"
    )
    p = "" if lead.p is None else f", p {'' if lead.p < 0.001 else '= '}{p_text(lead.p)}"
    answer = (
        f"{best} reached {number(records.seeds(best).mean())} % {POINTS[records.point]}, the best of {len(behind) + 1} "
        f"methods and {number(abs(mean))} points ahead of {second} ({span}{p})"
    )
    ties = [label for label, own in behind.items() if not own.decided]
    if n < 3:
        answer += "; one seed is not enough to decide." if n == 1 else "; two seeds cannot decide."
    elif ties:
        answer += f"; with {n} seeds it cannot be told from {listed(ties)}."
    elif any(records.in_doubt(best, label, 1.0) for label in behind):
        found.text("a doubt", page.answer[-22:], "so no winner is named.")
        answer = page.answer
    else:
        answer += ": it is the best of them on this data."
    found.text("answer", page.answer, answer)
    groups: dict[str, list[str]] = {"better than local training": [], "worse than local training": [], "undecided": []}
    for label, own in local.items():
        if label != POOLED and not (own.decided and records.in_doubt(label, LOCAL, own.values.mean())):
            word = (
                "undecided"
                if not own.decided
                else ["worse", "better"][int(own.values.mean() > 0)] + " than local training"
            )
            groups[word].append(label)
    line = "; ".join(f"{word}: {listed(names)}" for word, names in groups.items() if names)
    if line:
        found.text("against local training", page.notes[0], f"{line[0].upper()}{line[1:]}.")
    for note in page.notes:
        if note.startswith("Between the first two"):
            these = "these seeds" if lead.part is None else "these seeds and test samples"
            expected = f"Between the first two, {these} cannot tell differences below {number(half or 0)} points from 0"
            needed = lead.needed
            if lead.no_seeds:
                expected += "; more seeds cannot show the observed one, more test samples can"
            elif not lead.decided and needed and needed > len(lead.values):
                expected += f"; the observed one would need about {needed} seeds to show with a probability of 80 %"
            found.text("resolution", note, f"{expected}.")


def sequential_test_of(records: Records, rules: dict[str, float]) -> SequentialTest:
    """The sequential test over the first seeds of every method without a gap."""
    lost = {label for label, _ in records.failed}
    scores = {}
    for label in records.labels:
        if label == POOLED or label in lost:
            continue
        seeds = records.seeds(label) if label in records.rows else pd.Series(dtype=float)
        whole = [n for n in range(len(seeds)) if set(range(n + 1)) <= set(seeds.index)]
        scores[label] = seeds.loc[whole].to_numpy()
    return SequentialTest(scores, rules["margin"] / 100, int(rules["most"]), records.first_part)


def check_sequential_test(
    found: Check, page: Page, table: pd.DataFrame, records: Records, test: SequentialTest
) -> None:
    """Verdicts with their intervals, marks, colours, the answer and the lines under it."""
    margin = f"{100 * test.margin:g} point{'' if 100 * test.margin == 1 else 's'}"
    leader = test.candidates[0]
    for label, cells in cells_of(page):
        word, bound = test.against.get(label, ("", None))
        best, from_best = "", test.out.get(label) or test.behind.get(label)
        if label in test.out:
            best = "not the best"
        elif label == leader and test.look:
            best = {"winner": "best", "tie": "best, tied", "within": f"best or within {margin}"}.get(
                test.ending, "open"
            )
        elif label in test.behind:
            best = {"tie": f"equal within {margin}", "within": "may be better"}.get(test.ending, "open")
        texts = {
            "seeds": str(test.seeds.get(label, "")),
            "over local": span_of(bound),
            "against local": f"equal within {margin}" if word == "equal" else word,
            "from the best": span_of(from_best),
            "who is best": best,
        }
        for head, expected in texts.items():
            if head in cells or expected:
                found.text(f"{label}, {head}", cells.get(head, ("", ""))[0], expected)
        found.text(f"{label}, mark", " =" * cells["score"][0].endswith(" ="), " =" * (label in test.candidates[1:]))
        mean = 0.0 if bound is None else bound.mean
        found.text(f"{label}, colour", cells["score"][1], tone_of(records, label, mean, word in ("better", "worse")))
        row = table.loc[label]
        found.value(f"table.csv, {label}, sequential_seeds", row["sequential_seeds"], test.seeds.get(label, 0))
        for name, own in (("sequential_over_local", bound), ("sequential_from_best", from_best)):
            for end, value in (("", "mean"), ("_low", "low"), ("_high", "high")):
                expected_end = getattr(own, value) if own else None
                found.value(f"table.csv, {label}, {name}{end}", row[f"{name}{end}"], expected_end, 2e-6)
        for name, expected in (("sequential_against_local", texts["against local"]), ("sequential_who_is_best", best)):
            found.text(f"table.csv, {label}, {name}", str(row[name]) if pd.notna(row[name]) else "", expected)
    known = {label: bound for label, (_, bound) in test.against.items()}
    for chart, bounds in (("forest", known), ("behind", {**test.behind, **test.out})):
        check_methods(found, page, chart, bounds)
        for label, *shown in rows_of(page, chart):
            own = bounds[label]
            ends = [own.low if np.isfinite(own.low) else own.mean, own.high]
            for text, expected in zip(shown, [signed(own.mean), *map(signed, ends), str(own.n)], strict=True):
                found.text(f"{chart}, {label}", text, expected)
    check_sequential_words(found, page, records, test, margin)


def span_of(bound: Bound | None) -> str:
    return "" if bound is None else f"{signed(bound.mean)} ({ends_of(bound)})"


def ends_of(bound: Bound) -> str:
    low = f"{signed(bound.low)} to " if np.isfinite(bound.low) else "at most "
    return low + signed(bound.high)


def check_sequential_words(found: Check, page: Page, records: Records, test: SequentialTest, margin: str) -> None:
    leader, rest = test.candidates[0], test.candidates[1:]
    reached = f"{leader} reached {number(records.seeds(leader).mean())} % {POINTS[records.point]}"
    after = f"{test.seeds.get(leader, 0)} seeds"
    doubt = test.ending == "winner" and any(records.in_doubt(leader, label, 1.0) for label in test.out)
    answers = {
        "winner": f"{reached}: it is the best, decided after {after}.",
        "tie": f"{reached}; equal to it within {margin}: {listed(rest)}, decided after {after}.",
        "within": f"{reached} and is best or within {margin} of the best; {listed(rest)} may be better ({after}).",
        "open": f"Undecided: {reached}, but {listed(rest)} may be better by {margin} or more ({after}).",
        "": f"Not decided after {after}: {reached}, and {listed(rest)} may still be the best.",
    }
    if not test.look:
        found.text("answer", page.answer, f"Not decided yet: the first look is at {test.needs} seeds.")
        return
    if doubt:
        found.text(
            "answer",
            re.sub("; but .*, so", ", so", page.answer),
            f"{reached} and beats all others, decided after {after}, so no winner is named.",
        )
    else:
        found.text("answer", page.answer, answers[test.ending])
    statements: dict[str, list[str]] = {}
    if test.ending != "winner":
        statements[f"Difference from {leader}: "] = [f"{m} ({ends_of(test.behind[m])})" for m in rest]
    prefixes = {
        "better": "Better than local training: ",
        "worse": "Worse than local training: ",
        "equal": f"Equal to local training within {margin}: ",
        "given up": "Given up against local training, ",
    }
    for label, (word, bound) in test.against.items():
        if word in ("better", "worse", "equal") and records.in_doubt(label, LOCAL, bound.mean):
            continue
        prefix = prefixes.get(word, "Undecided against local training: ")
        statements.setdefault(prefix, []).append(f"{label} ({ends_of(bound)})")
    for prefix, expected in statements.items():
        lines = [note for note in page.notes if note.startswith(prefix)]
        shown = sorted(re.findall(r"[^ ,:]+ \([^)]*\)", lines[0].partition(": ")[2])) if len(lines) == 1 else []
        if len(expected) > 6:  # a long list is shortened
            continue
        if len(shown) != len(expected):
            found.wrong.append(f"{prefix}{shown} instead of {expected}")
        for text, own in zip(shown, sorted(expected), strict=False):
            found.text(prefix, text, own)
    for word in ("Better than", "Worse than", "Equal to local", "Given up", "Undecided against", "Difference from"):
        if any(note.startswith(word) for note in page.notes) and not any(name.startswith(word) for name in statements):
            found.wrong.append(f"{word}: a statement that no number supports")
    if test.needs:
        (line,) = [note for note in page.notes if note.startswith("Stopped before")] or [""]
        end = line.partition("continues with ")[2]
        count = f"{test.waiting} method{'' if test.waiting == 1 else 's'}"
        found.text("what goes on", end, f"{test.needs} seeds of {count}.")


def main(folder: str) -> int:
    found = check(Path(folder))
    for line in found.wrong:
        print(line)
    print(f"{found.numbers} numbers in {found.texts} texts and files: {len(found.wrong)} disagree")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
