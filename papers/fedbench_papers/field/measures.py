"""What a comparison of the field measured, as rows of its record."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from fedbench import __version__
from fedbench.report.leaderboard import OTHER_POINT, LeaderboardRow, leaderboard
from fedbench.report.study import Study
from fedbench.results.contrasts import family
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
    numbers += _of_newcomers(study) if point == NEWCOMERS else _of_verdicts(study, board)
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
    """Who may be best, and the verdicts of the comparison against local training and the best method.

    Then those against a fine-tuned shared model, where that is not the best one, and those at the other point.
    """
    told = set[tuple[str, str]]()
    for row in board:
        if not row.is_reference and not is_degenerate(study, row.label):
            is_behind = row.behind is not None and bool(row.behind.sign)
            yield row.label, None, None, study.point, "may_be_best", float(not is_behind)
        for verdict in (row.over_local, row.behind):
            pair = (row.label, "") if verdict is None else (row.label, _other(verdict, row.label))
            if verdict is not None and pair not in told:
                told.add(pair)
                yield from _of_verdict(verdict, row.label, study.point)
    labels, other = [row.label for row in board], OTHER_POINT[study.point]
    against = {(BASELINE, other): labels, (FINE_TUNED, study.point): [one for one in labels if one != BASELINE]}
    for (base, point), ours in against.items():
        pairs = [(label, base) for label in ours if label != base and base in labels]
        for contrast in family(study.scores, pairs, point):
            if point == other or (contrast.method, base) not in told:
                yield from _of_verdict(contrast, contrast.method, point)


def _other(verdict: Verdict, method: str) -> str:
    """The other method of a verdict."""
    return verdict.against if verdict.method == method else verdict.method


def _of_verdict(verdict: Verdict, method: str, point: str) -> Iterator[Number]:
    """The interval of a difference, seen from this one of its two methods."""
    mean, half = verdict.interval.mean, getattr(verdict, "simultaneous", None)
    low, high = (verdict.interval.low, verdict.interval.high) if half is None else (mean - half, mean + half)
    against = _other(verdict, method)
    if method != verdict.method:
        mean, low, high = -mean, None if high is None else -high, None if low is None else -low
    values = {"gain": mean, "gain_low": low, "gain_high": high, "withheld": float(verdict.stated == "withheld")}
    yield from ((method, against, None, point, name, float(v)) for name, v in values.items() if v is not None)


def _of_newcomers(study: Study) -> Iterator[Number]:
    """Verdicts on scores of newcomers, paired by seed: Student t intervals, all pairs corrected by Bonferroni."""
    runs = {label: run for label, run in study.runs.items() if label not in study.plan.references}
    every = {label: scores_after_most_epochs(study.metric, run.newcomers()) for label, run in runs.items()}
    scores = {label: values for label, values in every.items() if len(values) >= LEAST_SEEDS}
    confidence = 1 - (1 - CONFIDENCE) / max(1, comb(len(scores), 2))
    gains: dict[tuple[str, str], tuple[float, float, float]] = {}
    for one, two in combinations(scores, 2):
        values = (scores[one] - scores[two]).dropna()
        ends = interval(values.tolist(), confidence) if len(values) >= LEAST_SEEDS else None
        if ends is not None and ends.low is not None and ends.high is not None:
            gains[one, two] = ends.mean, ends.low, ends.high
            gains[two, one] = -ends.mean, -ends.high, -ends.low
    for label in scores:
        worse_than = [other for other in scores if (label, other) in gains and gains[label, other][2] < 0]
        yield label, None, None, NEWCOMERS, "may_be_best", float(not worse_than)
        for against in (BASELINE, FINE_TUNED):
            if (label, against) in gains:
                for name, value in zip(("gain", "gain_low", "gain_high"), gains[label, against], strict=True):
                    yield label, against, None, NEWCOMERS, name, value


def beside_recorded(recorded: pd.DataFrame, own: pd.DataFrame, point: str) -> pd.DataFrame:
    """The rows of further methods of a setting, with a verdict on each against the best of those recorded.

    recorded, own: rows of one setting. The difference is paired by seed, with a Student t interval over seeds alone,
    corrected by Bonferroni for the number of further methods: the outcomes of test samples are not recorded.
    """
    scores = recorded[(recorded["quantity"] == "score") & (recorded["point"] == point) & recorded["seed"].notna()]
    rivals = set(recorded[(recorded["quantity"] == "may_be_best") & (recorded["value"] == 1)]["method"])
    means = scores[scores["method"].isin(rivals)].groupby("method")["value"].mean()
    methods = own["method"].unique().tolist()
    known = own["against"].isna() | own["against"].isin((BASELINE, FINE_TUNED))
    ours = own[known & (own["quantity"] != "may_be_best")]
    if means.empty:
        return ours
    leader, setting = str(means.idxmax()), str(own["setting"].iloc[0])
    best = scores[scores["method"] == leader].set_index("seed")["value"]
    confidence = 1 - (1 - CONFIDENCE) / len(methods)
    rows = list[tuple[Any, ...]]()
    for method in methods:
        mine = own[(own["method"] == method) & (own["quantity"] == "score") & (own["point"] == point)]
        values = (mine.set_index("seed")["value"] - best).dropna().tolist()
        ends = interval(values, confidence)
        is_worse = False
        if len(values) >= LEAST_SEEDS and ends.low is not None and ends.high is not None:
            is_worse = ends.high < 0
            named = {"gain": ends.mean, "gain_low": ends.low, "gain_high": ends.high}
            rows += [(setting, method, leader, None, point, name, value) for name, value in named.items()]
        rows.append((setting, method, None, None, point, "may_be_best", float(not is_worse)))
    added = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"seed": "Int32"})
    return pd.concat([ours, added], ignore_index=True)


def about(study: Study, facts: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, Any]:
    """What was compared in a setting, and when. facts: of the plan; refused: methods that do not apply, and why."""
    counts, entries = class_counts(study), [e for e in study.plan.entries if e.status in ("done", "stopped")]
    seconds = [float(Records(path).timings()["cpu"].sum()) for path in {study.folder / e.path for e in entries}]
    return {
        **facts,
        "date": date.today().isoformat(),
        "version": __version__,
        "metric": study.metric.label,
        "margin": (study.plan.stopping_rule or {}).get("margin", 0.0) / study.metric.factor,
        "most_seeds": (study.plan.stopping_rule or {}).get("most"),
        "clients": len(next(iter(counts), [])),
        "samples": float(np.median([sum(client) for seed in counts for client in seed])) if counts else None,
        "heterogeneity": heterogeneity(counts),
        "runs": len(seconds),
        "hours": sum(seconds) / 3600,
        "config": study.plan.config,
        "chosen": study.plan.choices,
        "refused": dict(refused),
        "failed": dict(study.failures),
        "degenerate": [label for label in study.runs if is_degenerate(study, label)],
    }


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
