"""What a comparison of the field measured, as rows of its record."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedbench import __version__
from fedbench.config.tuning import LOOKS
from fedbench.report.doubts import doubts, gaps_of, with_doubt
from fedbench.report.leaderboard import OTHER_POINT, LeaderboardRow, leaderboard
from fedbench.report.study import Study
from fedbench.results.contrasts import contrasts
from fedbench.results.newcomers import scores_after_most_epochs
from fedbench.results.reader import Records
from fedbench.results.statistics import CONFIDENCE, LEAST_SEEDS, interval
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Verdict
from fedbench_papers.field.record import COLUMNS

FINE_TUNED = "fedavg-ft"
"""The shared model with a throwaway fine-tuning, which a personalised method should beat."""
NEWCOMERS = "newcomers"
"""The point of scores of clients that join after the last round."""
Number = tuple[str, str | None, int | None, str | None, str, float]
"""A row without its setting."""


def measure(setting: str, study: Study, point: str) -> pd.DataFrame:
    """The rows of a finished comparison. point: of the scores that are judged; `newcomers` for those that join."""
    board = leaderboard(study)
    numbers = [number for row in board for number in _of_method(row)]
    numbers += NewcomersTest(study).numbers() if point == NEWCOMERS else _of_verdicts(study, board)
    frame = pd.DataFrame(numbers, columns=list(COLUMNS)[1:])
    frame.insert(0, "setting", setting)
    return frame.astype({"seed": "Int32"})


def _of_method(row: LeaderboardRow) -> Iterator[Number]:
    """Scores by seed, and what a run costs."""
    study, label = row.study, row.label
    columns = {"score": study.test, "worst_tenth": "test_worst_tenth", "spread": "test_spread"}
    for point in (study.point, OTHER_POINT[study.point]):
        for line in study.last_rows(label, point).to_dict("records"):
            for name, column in columns.items():
                if (value := line.get(column)) is not None and not np.isnan(value):
                    yield label, None, int(line["seed"]), point, name, float(value)
    for seed, value in scores_after_most_epochs(study.metric, study.runs[label].newcomers()).items():
        yield label, None, int(str(seed)), NEWCOMERS, "score", float(value)
    traffic, tried = row.spent("bytes_up", "bytes_down"), {e.name for e in study.plan.points(label)}
    cost = {
        "steps": row.spent("steps"),
        "megabytes": None if traffic is None else traffic / 1e6,
        "seconds": row.spent("cpu_seconds_per_round"),
        "candidates": float(len(tried)),
    }
    yield from ((label, None, None, None, name, float(value)) for name, value in cost.items() if value is not None)


def _of_verdicts(study: Study, board: Sequence[LeaderboardRow]) -> Iterator[Number]:
    """Who may be best and who is better than local training, as the comparison says.

    Then the differences from a fine-tuned shared model, and at the other point those from local training.
    """
    for row in board:
        if (may := _may_be_best(study, row)) is not None:
            yield row.label, None, None, study.point, "may_be_best", float(may)
        if row.over_local is not None:
            ends = row.over_local.interval
            half = getattr(row.over_local, "simultaneous", None)
            low, high = (ends.low, ends.high) if half is None else (ends.mean - half, ends.mean + half)
            yield from _of_gain(row.over_local, study.point, low, high)
    labels, other = [row.label for row in board], OTHER_POINT[study.point]
    if BASELINE in labels:
        yield from _of_pairs(study, [(label, BASELINE) for label in labels if label != BASELINE], other)
    if FINE_TUNED in labels:
        others = [label for label in labels if label not in (BASELINE, FINE_TUNED)]
        yield from _of_pairs(study, [(label, FINE_TUNED) for label in others], study.point)


def _may_be_best(study: Study, row: LeaderboardRow) -> bool | None:
    """Whether nobody is surely better; None for a method that is not judged.

    It is a reference, runs of it failed, it was not at work, or a better one was found and a doubt remains.
    """
    test, label = study.sequential_test, row.label
    if row.is_reference or row.failed or is_degenerate(study, label):
        return None
    if test is not None and label not in {*test.candidates, *test.out}:
        return None
    return True if row.behind is None else {"better": False, "withheld": None}.get(row.behind.stated, True)


def _of_pairs(study: Study, pairs: Sequence[tuple[str, str]], point: str) -> Iterator[Number]:
    """Differences that the comparison does not test itself, with Student t intervals over seeds and test samples.

    Where seeds are added, a method may stop after any look, so that all pairs and all looks are corrected together, by
    Bonferroni. None without three seeds, or without any spread.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(pairs) * looks_of(study))
    for single in contrasts(study.scores, pairs, point):
        values = single.interval.values
        if len(values) >= LEAST_SEEDS and np.ptp(values) > 0:
            ends = interval(values, confidence, single.interval.samples)
            yield from _of_gain(with_doubt(study, single), point, ends.low, ends.high)


def looks_of(study: Study) -> int:
    """After how many numbers of seeds the comparison may have ended."""
    rule = study.plan.stopping_rule
    return 1 if rule is None else sum(look <= rule["most"] for look in LOOKS)


def _of_gain(verdict: Verdict, point: str, low: float | None, high: float | None) -> Iterator[Number]:
    """The rows of a difference with the ends of its interval."""
    values = {
        "gain": verdict.interval.mean,
        "gain_low": low,
        "gain_high": high,
        "seeds": float(verdict.interval.seeds),
        "withheld": float(verdict.is_withheld or bool(verdict.doubt)),
    }
    for name, value in values.items():
        if value is not None and not np.isnan(value):
            yield verdict.method, verdict.against, None, point, name, float(value)


class NewcomersTest:
    """Methods compared by the scores of clients that join after training, paired by seed.

    Student t intervals over seeds alone, corrected by Bonferroni for methods and looks. Who may be best: nobody is
    above it by a one-sided interval, corrected for the number of others (multiple comparisons with the best: Hsu,
    1984). Of methods that compete, were at work and failed in no seed.
    """

    def __init__(self, study: Study) -> None:
        self.study, self.scores = study, dict[str, pd.Series]()
        for label, run in study.runs.items():
            if label in study.plan.references or is_degenerate(study, label) or study.failed_seeds(label):
                continue
            values = scores_after_most_epochs(study.metric, run.newcomers())
            if len(values) >= LEAST_SEEDS:
                self.scores[label] = values
        self.level = (1 - CONFIDENCE) / max(1, (len(self.scores) - 1) * looks_of(study))

    @cached_property
    def ahead(self) -> dict[str, str | None]:
        """By method, the one that is surely above it, by the most; None if there is none."""
        return {label: self._ahead_of(label) for label in self.scores}

    def _ahead_of(self, label: str) -> str | None:
        others = {other: values for other, values in self.scores.items() if other != label}
        ends = {other: _ends(values, self.scores[label], 1 - 2 * self.level) for other, values in others.items()}
        lows = {other: known[1] for other, known in ends.items() if known is not None and known[1] > 0}
        return max(lows, key=lows.__getitem__) if lows else None

    @cached_property
    def doubt_by_method(self) -> dict[str, str]:
        """Why methods are not judged although another one is above them."""
        pairs = {label: other for label, other in self.ahead.items() if other is not None}
        known = {label: doubts(self.study, other, label, 1.0) for label, other in pairs.items()}
        return {label: doubt for label, doubt in known.items() if doubt}

    def numbers(self) -> Iterator[Number]:
        """Who may be best, and the differences from local training and from a fine-tuned shared model."""
        for label, other in self.ahead.items():
            if label not in self.doubt_by_method:
                yield label, None, None, NEWCOMERS, "may_be_best", float(other is None)
        for label, against in product(self.scores, (BASELINE, FINE_TUNED)):
            if against not in self.scores or label == against:
                continue
            if (ends := _ends(self.scores[label], self.scores[against], 1 - self.level)) is None:
                continue
            mean, low, high, seeds = ends
            doubt = doubts(self.study, label, against, mean) if low > 0 or high < 0 else ""
            values = {"gain": mean, "gain_low": low, "gain_high": high, "seeds": seeds, "withheld": float(bool(doubt))}
            for name, value in values.items():
                yield label, against, None, NEWCOMERS, name, value


def _ends(ours: pd.Series, theirs: pd.Series, confidence: float) -> tuple[float, float, float, float] | None:
    """Mean, low and high of the paired differences, and their number; None without three, or without any spread."""
    values = (ours - theirs).dropna().tolist()
    if len(values) < LEAST_SEEDS or np.ptp(values) == 0:
        return None
    ends = interval(values, confidence)
    assert ends.low is not None
    assert ends.high is not None
    return ends.mean, ends.low, ends.high, float(len(values))


def beside_recorded(recorded: pd.DataFrame, own: pd.DataFrame, point: str) -> pd.DataFrame:
    """The rows of further methods of a setting, with a verdict on each against the best of those recorded.

    recorded, own: rows of one setting. The difference is paired by seed, with a Student t interval over seeds alone,
    corrected by Bonferroni for the number of further methods: the outcomes of test samples are not recorded.
    """
    known = own["against"].isna() | own["against"].isin((BASELINE, FINE_TUNED))
    ours = own[known & (own["quantity"] != "may_be_best")]
    scores = recorded[(recorded["quantity"] == "score") & (recorded["point"] == point) & recorded["seed"].notna()]
    rivals = set(recorded[(recorded["quantity"] == "may_be_best") & (recorded["value"] == 1)]["method"])
    by_method = {str(m): rows.set_index("seed")["value"] for m, rows in scores.groupby("method") if m in rivals}
    if own.empty or not by_method:
        return ours
    # The best over the seeds that all of them have.
    shared = pd.DataFrame(by_method).dropna()
    leader, setting = str(shared.mean().idxmax() if len(shared) else next(iter(by_method))), str(own["setting"].iloc[0])
    methods, rows = own["method"].unique().tolist(), list[tuple[Any, ...]]()
    confidence = 1 - (1 - CONFIDENCE) / len(methods)
    for method in methods:
        mine = own[(own["method"] == method) & (own["quantity"] == "score") & (own["point"] == point)]
        ends = _ends(mine.set_index("seed")["value"], by_method[leader], confidence)
        rows.append((setting, method, None, None, point, "may_be_best", float(ends is None or ends[2] >= 0)))
        if ends is not None and leader not in (BASELINE, FINE_TUNED):
            named = zip(("gain", "gain_low", "gain_high", "seeds"), ends, strict=True)
            rows += [(setting, method, leader, None, point, name, value) for name, value in named]
    added = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"seed": "Int32"})
    return pd.concat([ours, added], ignore_index=True)


def about(study: Study, facts: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, Any]:
    """What was compared in a setting, and when. facts: of the plan; refused: methods that do not apply, and why."""
    dealt = next((run.partition() for run in study.runs.values()), {})
    counts, entries = class_counts(study), [e for e in study.plan.entries if e.status in ("done", "stopped")]
    seconds = [float(Records(path).timings()["cpu"].sum()) for path in {study.folder / e.path for e in entries}]
    return {
        **facts,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "metric": study.metric.label,
        "margin": (study.plan.stopping_rule or {}).get("margin", 0.0) / study.metric.factor,
        "clients": int(max((len(tree["clients"]) for tree in dealt.values() if "clients" in tree), default=0)),
        "samples": float(np.median([sum(client) for seed in counts for client in seed])) if counts else None,
        "heterogeneity": heterogeneity(counts),
        "runs": len(seconds),
        "hours": sum(seconds) / 3600,
        "config": study.plan.config,
        "chosen": study.plan.choices,
        "refused": dict(refused),
        "failed": {**dict(failed_in_part(study)), **study.failures},
        "doubts": NewcomersTest(study).doubt_by_method
        if facts.get("point") == NEWCOMERS
        else {row.label: doubt for row in leaderboard(study) if (doubt := doubt_of(row))},
        "degenerate": [label for label in study.runs if is_degenerate(study, label)],
    }


def failed_in_part(study: Study) -> Iterator[tuple[str, str]]:
    """Methods of which some seeds failed, and why, so that they are not judged."""
    for label in study.runs:
        if study.failed_seeds(label):
            yield label, f"{gaps_of(study, label)}: {study.reason(label)}"


def doubt_of(row: LeaderboardRow) -> str:
    """Why a method is not judged although another one is ahead of it by a test; empty if it is."""
    behind = row.behind
    if behind is None or behind.stated != "withheld":
        return ""
    return behind.doubt or "an outlying seed decides"


def is_degenerate(study: Study, label: str) -> bool:
    """Whether a method was not at work in half of its runs or more, which therefore say nothing of it."""
    summary = study.summaries[label]
    return 2 * len(summary.get("degenerate", ())) >= max(1, len(summary["seeds"]))


def class_counts(study: Study) -> list[list[list[int]]]:
    """Training samples by seed, client and class, of one method; none where targets are no classes."""
    dealt = next((run.partition() for run in study.runs.values()), {})
    return [tree["class_counts"] for tree in dealt.values() if tree.get("class_counts")]


def heterogeneity(counts: Sequence[Sequence[Sequence[int]]]) -> float | None:
    """How far clients' class distributions are from that of all: mean total variation, 0 (alike) to 1."""
    distances = []
    for seed in counts:
        rows = np.array(seed, dtype=float)
        rows = rows[rows.sum(1) > 0]
        whole = rows.sum(0) / rows.sum()
        distances.append(float(np.abs(rows / rows.sum(1, keepdims=True) - whole).sum(1).mean() / 2))
    return float(np.mean(distances)) if distances else None
