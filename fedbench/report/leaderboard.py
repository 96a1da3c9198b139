"""The leaderboard of a comparison: its methods in order, each with its verdicts and what was recorded of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf

import pandas as pd

from fedbench.report.doubts import with_doubt
from fedbench.report.study import Study
from fedbench.report.verdicts import SequentialStanding, sequential_verdicts, tone_of
from fedbench.results.contrasts import block_ranks, family, stricter
from fedbench.results.newcomers import after_most_epochs
from fedbench.results.plan import point_name
from fedbench.results.remarks import beside_row
from fedbench.results.rotations import DIGITS
from fedbench.results.schema import SUMMED_COSTS
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import Interval
from fedbench.results.tables import BASELINE, LAST, known_interval
from fedbench.results.unscored import scored_counts
from fedbench.results.verdict import Bound, Verdict

OTHER_POINT = {"after_agg": "after_fit", "after_fit": "after_agg"}
"""The evaluation point that the answer does not use."""


@dataclass
class LeaderboardRow:
    """A method of a study, with the verdicts on it and what was recorded of it at the last round.

    over_local, behind: it against local training and the best against it; None for these two themselves. rank: the mean
    over seeds; standing: what a sequential test says of it in words; target: local's last score.
    """

    study: Study
    label: str
    over_local: Verdict | None
    behind: Verdict | None
    rank: float | None
    standing: SequentialStanding | None
    target: float | None

    @cached_property
    def last(self) -> pd.DataFrame:
        return self.study.last_rows(self.label)

    @cached_property
    def score(self) -> Interval:
        """The test score at the study's point."""
        return self.study.scores.score(self.label, self.study.point)

    @cached_property
    def other(self) -> Interval | None:
        """The test score at the other point."""
        point = OTHER_POINT[self.study.point]
        return self.study.scores.score(self.label, point) if len(self.study.last_rows(self.label, point)) else None

    @cached_property
    def worst(self) -> Interval | None:
        """The mean of the worst tenth of clients."""
        return self.recorded("test_worst_tenth")

    @cached_property
    def spread(self) -> float | None:
        """The standard deviation over a seed's clients, mean over seeds."""
        return None if self.last["test_spread"].isna().all() else float(self.last["test_spread"].mean())

    @cached_property
    def newcomers(self) -> Interval | None:
        """The score of clients that joined after the last round, after their most local epochs."""
        return after_most_epochs(self.study.metric, self.study.runs[self.label].newcomers())

    @property
    def clients(self) -> pd.DataFrame:
        return self.study.scores.clients[self.label, self.study.point, LAST]

    def recorded(self, name: str) -> Interval | None:
        """A column of metrics.jsonl over seeds."""
        return known_interval(self.last, name, self.study.metric)

    @cached_property
    def scored(self) -> Sequence[int]:
        """How many of the evaluated clients have a score, by seed."""
        return scored_counts(self.last, self.study.metric)

    @property
    def failed(self) -> int:
        """The number of seeds without a score because their run failed or diverged."""
        return len(self.study.failed_seeds(self.label))

    @property
    def mark(self) -> str:
        """The remark after a score that lacks seeds."""
        return f" ({self.score.seeds} of {self.score.seeds + self.failed} seeds)" if self.failed else ""

    @property
    def remarks(self) -> Sequence[str]:
        """The remarks of its runs that concern its numbers."""
        return beside_row(self.study.summaries[self.label]["doubts"])

    @property
    def chosen(self) -> str:
        """The best candidate."""
        return point_name(self.study.plan.choices.get(self.label, {}))

    @cached_property
    def tone(self) -> str:
        """The colour of its score (`verdicts.TONES`)."""
        if self.is_reference:
            return "baseline"
        return tone_of(self.label, self.over_local) if BASELINE in self.study.metrics else ""

    @property
    def is_reference(self) -> bool:
        """Whether it does not compete, because it trains on the pooled data of all clients."""
        return self.label in self.study.plan.references

    @property
    def tied(self) -> bool:
        """Whether it cannot be told from the best."""
        if self.standing is not None:
            return self.standing.may_be_best
        return self.behind is not None and not self.behind.sign

    @property
    def from_best(self) -> Bound | None:
        """The difference from the best in a sequential test."""
        interval = None if self.behind is None else self.behind.interval
        return -interval if isinstance(interval, Bound) else None

    def spent(self, *names: str) -> float | None:
        """A cost of the whole run, mean over clients if it is one of clients; unknown if the first is."""
        return run_cost(self.study, self.label, *names)

    @cached_property
    def reached(self) -> tuple[int | None, float | None]:
        """When the mean curve first reaches local's last score: the round, and the bytes until then."""
        known = None if self.target is None else first_reaching(self.study, self.label, self.target)
        return known or (None, None)


def run_cost(study: Study, label: str, *names: str) -> float | None:
    """The sum of costs of a method's whole run, mean over clients if they are of clients; unknown if the first is."""
    cost, rounds = study.summaries[label], study.runs[label].config().get("rounds") or 0
    shares = {name: cost.get("participation") or 1.0 for name in SUMMED_COSTS}
    costs = [(cost.get(name) or 0) * rounds * shares.get(name, 1.0) for name in names]
    return None if cost.get(names[0]) is None else sum(costs)


def leaderboard(study: Study, margin: float | None = None) -> list[LeaderboardRow]:
    """The methods in the study's order: best mean first, references last.

    margin: a difference too small to matter, in units of the metric; differences surely below it are called equal.
    """
    labels = study.ordered
    if not labels:
        return []
    if study.sequential_test is not None:
        labels = sequential_order(study, study.sequential_test)
    local, behind = comparisons(study, labels, margin)
    order = block_ranks(study.scores, [label for label in labels if label not in study.plan.references], study.point)
    target = study.final_score(BASELINE) if BASELINE in labels else None
    standings = (
        {}
        if study.sequential_test is None
        else {label: sequential_verdicts(study, study.sequential_test, label)[2] for label in labels}
    )
    return [
        LeaderboardRow(study, m, local.get(m), behind.get(m), order.get(m), standings.get(m), target) for m in labels
    ]


def comparisons(
    study: Study, labels: Sequence[str], margin: float | None = None
) -> tuple[Mapping[str, Verdict], Mapping[str, Verdict]]:
    """Every method against local training, and the best against every other competing method, by label.

    Without a sequential test these are two families. A pair in both gets the stricter correction, so that a report
    states one value.
    """
    if study.sequential_test is not None:
        verdicts = {label: sequential_verdicts(study, study.sequential_test, label) for label in labels}
        over_local = {label: verdict for label, (verdict, _, _) in verdicts.items() if verdict is not None}
        return over_local, {label: verdict for label, (_, verdict, _) in verdicts.items() if verdict is not None}
    best = labels[0]
    compared = partial(family, study.scores, point=study.point, margin=margin)
    others = [label for label in labels if label != BASELINE] if BASELINE in labels else []
    local = {c.method: c for c in compared([(label, BASELINE) for label in others])}
    rivals = [label for label in labels[1:] if label not in study.plan.references]
    behind = {c.against: c for c in compared([(best, rival) for rival in rivals])}
    for label in [label for label in behind if BASELINE in (best, label)]:
        method = label if best == BASELINE else best
        local[method], behind[label] = stricter(local[method], behind[label]), stricter(behind[label], local[method])
    doubted = [{label: with_doubt(study, c) for label, c in family.items()} for family in (local, behind)]
    return doubted[0], doubted[1]


def sequential_order(study: Study, test: SequentialTest) -> list[str]:
    """Methods by their paired difference from the leader over the seeds that both have, references last."""
    labels = [label for label in study.ordered if label not in study.plan.references]
    leader = test.leader if test.leader in labels else None
    if leader is None or not test.look:
        return study.ordered

    def behind(label: str) -> float:
        paired = study.scores.paired_clients(label, leader, study.point, LAST)
        return float(paired.groupby("seed")["difference"].mean().mean()) if len(paired) else -inf

    candidates = [label for label in test.candidates if label in labels]
    others = sorted((label for label in labels if label not in candidates), key=lambda label: -behind(label))
    return [*candidates, *others, *(label for label in study.ordered if label in study.plan.references)]


def first_reaching(study: Study, label: str, target: float) -> tuple[int, float | None] | None:
    """The first round whose mean over seeds reaches the target, and the bytes per client so far."""
    curve = study.curves[label, study.point]
    shown, target = (curve["mean"] / study.metric.factor).round(DIGITS), round(target, DIGITS)
    good = curve[shown >= target] if study.metric.higher else curve[shown <= target]
    if good.empty:
        return None
    number = int(good["round"].iloc[0])
    sent = study.costs[label].set_index("round")["sent"]
    return number, float(sent[number]) if number in sent.index else None
