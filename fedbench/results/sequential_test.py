"""A comparison that adds seeds until it is decided: which statements hold after which look, and who needs more seeds.

Looks are at fixed numbers of seeds. Each spends a share of two error levels of 2.5 %, one for the contrasts with local
training and one for the question of the best method, so that all statements of all looks together are false with a
probability of at most 5 % (union bound; given the tuned points, and if differences over seeds are jointly normal).
Everything follows from the scores of the first seeds: a study that is stopped and continued comes to the same
statements, and the order in which runs end decides nothing.

Where seeds share test samples, intervals have the error of their choice too (`sample_error.py`): its variance is added
to that of the seeds, and how many standard errors an interval has stays that of the seeds' rotations. That error does
not shrink with further seeds, so a question may be one that no number of seeds decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Literal

import numpy as np
from scipy import special

from fedbench.config.tuning import LOOKS
from fedbench.results.look import Look
from fedbench.results.plan import Plan
from fedbench.results.rotations import ROTATIONS
from fedbench.results.sample_error import Deviations, sample_variances
from fedbench.results.tables import BASELINE, LAST, FinalScores
from fedbench.results.verdict import Bound, Verdict, relation_of_interval

WEIGHTS = (0.05, 0.10, 0.20, 0.25, 0.20, 0.10, 0.05, 0.025)
"""Shares of the error levels that the looks spend; at most 1 in all, so that a maximum may be raised later."""
LEVEL = 0.025
"""Error level of each of the two questions."""
GIVING_UP_FROM = 12
"""Seeds from which on a question is given up that the maximum would hardly decide."""
LEAST_CHANCE = 0.2
"""Chance of a decision below which it is given up."""

Ending = Literal["winner", "tie", "within", "open"]


@dataclass(frozen=True)
class Rules:
    """margin: a difference that is too small to matter, in units of the metric; most: the maximum number of seeds."""

    margin: float
    most: int

    def looks(self) -> list[tuple[int, float]]:
        """Numbers of seeds with the error level of each question."""
        return [(n, LEVEL * weight) for n, weight in zip(LOOKS, WEIGHTS, strict=True) if n <= self.most]


UNKNOWN = Bound(np.nan, -np.inf, np.inf, np.nan, 0)


@dataclass
class SequentialTest:
    """The state of a comparison after its last complete look.

    over_local: what was told, by method; undecided: the interval at the last look of the other ones; given_up: of
    these, those with hardly a chance, which it is; withheld: verdicts that do not hold without outlying seeds, by
    question (`local` or `best`) and method. candidates: who may be the best, the leader first; out: who is not better
    than all of them, with the method that is ahead the most. ending: the answer to who is best; None while seeds are
    added; ended_at: the seeds after which it was known. behind: of the other candidates, their difference from the
    leader; the high end is the same for all, the most that any candidate may be ahead. needs: the number of seeds that
    each method needs next; seeds: those used, by method. needs_samples: questions, as in `withheld`, that no number of
    seeds would decide over these test samples (`best` of the leader). over_samples: whether intervals are over test
    samples too.
    Intervals are wide enough to hold without outlying seeds. They are simultaneous, but for those of `out`:
    which method is better than one that is out is not certain, only that there is one at least as good.
    """

    look: int = 0
    over_local: dict[str, Verdict] = field(default_factory=dict)
    undecided: dict[str, Bound] = field(default_factory=dict)
    given_up: dict[str, float] = field(default_factory=dict)
    withheld: dict[tuple[str, str], str] = field(default_factory=dict)
    candidates: list[str] = field(default_factory=list)
    out: dict[str, tuple[str, Bound]] = field(default_factory=dict)
    ending: Ending | None = None
    ended_at: int = 0
    behind: dict[str, Bound] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    needs_samples: set[tuple[str, str]] = field(default_factory=set)
    over_samples: bool = False

    @property
    def is_over(self) -> bool:
        return not self.needs

    @property
    def leader(self) -> str | None:
        return self.candidates[0] if self.candidates else None


def judge(
    scores: Mapping[str, Sequence[float]],
    rules: Rules,
    failed: Collection[str] = (),
    baseline: str = BASELINE,
    rotations: int = ROTATIONS,
    samples: Mapping[str, Sequence[Deviations]] | None = None,
) -> SequentialTest:
    """The test as far as the scores go.

    scores: of every method, higher is better, in the order of the seeds, which is the same for all; a method may have
    fewer than others. failed: methods that lack a seed for good, which take no part. samples: by how much each test
    sample moves each of these scores; None where that is not known of all, so that intervals are over seeds alone.
    """
    methods = [method for method in scores if method not in failed]
    test = SequentialTest(candidates=list(methods), over_samples=samples is not None)
    test.undecided = {}
    if baseline in methods:
        test.undecided = {method: UNKNOWN for method in methods if method != baseline}
    for n, level in rules.looks():
        running = _running(test, baseline)
        if not running:
            break
        if any(len(scores[method]) < n for method in running):
            test.needs = dict.fromkeys(running, n)
            return test
        added = None if samples is None else sample_variances([samples[method][:n] for method in running])
        look = Look(np.array([scores[method][:n] for method in running]).T, running, rotations, added)
        _judge_look(test, look, rules, level, baseline)
        test.look = n
        test.seeds |= dict.fromkeys(running, n)
    test.needs = {}
    return test


def _running(test: SequentialTest, baseline: str) -> list[str]:
    """Methods that need further seeds: open contrasts, local training while there are some, and candidates."""
    methods = [method for method in test.undecided if method not in test.given_up]
    active = {*methods, *([baseline] if methods else ()), *(test.candidates if test.ending is None else ())}
    if active <= {baseline}:
        return []
    order = [baseline, *test.undecided, *test.over_local, *test.candidates]
    return [method for method in dict.fromkeys(order) if method in active]


def _judge_look(test: SequentialTest, look: Look, rules: Rules, level: float, baseline: str) -> None:
    methods = [method for method in test.undecided if method in look.place and method not in test.given_up]
    if methods:
        _look_over_local(test, look, methods, rules, level, baseline)
    if test.ending is None:
        _look_for_best(test, look, level)
        test.ending = _ending(test, look.seeds, rules)
        test.ended_at = look.seeds if test.ending is not None else 0


def _look_over_local(
    test: SequentialTest, look: Look, methods: Sequence[str], rules: Rules, level: float, baseline: str
) -> None:
    # Those given up keep their share of the level, because which ones they are depends on the scores.
    family = len(test.undecided)
    critical = look.critical(methods, baseline, level * len(methods) / family, two_sided=True)
    for method in methods:
        test.withheld.pop(("local", method), None)
        test.needs_samples.discard(("local", method))
        test.undecided[method] = bound = look.cautious(method, baseline, critical)
        verdict = Verdict(method, baseline, bound, rules.margin)
        if verdict.relation != "open":
            test.over_local[method] = verdict
            del test.undecided[method]
        elif (plain := relation_of_interval(look.bound(method, baseline, critical), rules.margin)) != "open":
            test.withheld["local", method] = plain
        else:
            if no_seeds_decide(bound, 2 * family, rules):
                test.needs_samples.add(("local", method))
            if GIVING_UP_FROM <= look.seeds < rules.looks()[-1][0]:
                chance = _chance_over_local(bound, family, rules)
                if chance < LEAST_CHANCE:
                    test.given_up[method] = chance


def _look_for_best(test: SequentialTest, look: Look, level: float) -> None:
    """Takes out whom another candidate beats.

    Every candidate is compared with all others by a family of its own, one-sided. Only the family of the method that is
    truly best counts, so the level is that of one family: if its intervals hold, it is not taken out, and all ends of
    `behind` hold whoever it is.
    """
    before = test.candidates
    critical = {
        method: look.critical([other for other in before if other != method], method, level, two_sided=False)
        for method in before
    }
    plain, cautious = look.leads(critical)
    for column, method in enumerate(before):
        test.withheld.pop(("best", method), None)
        ahead = before[int(cautious[:, column].argmax())]
        if cautious[:, column].max() > 0:
            test.out[method] = ahead, look.cautious(ahead, method, critical[method])
        elif plain[:, column].max() > 0:
            test.withheld["best", method] = f"behind {before[int(plain[:, column].argmax())]}"
    test.candidates = sorted(critical.keys() - test.out.keys(), key=lambda method: (-look.mean(method), method))
    leader, *rest = test.candidates
    left = [before.index(method) for method in test.candidates]
    leads = np.where(np.eye(len(left), dtype=bool), np.inf, cautious[np.ix_(left, left)])
    low, high = leads.min(1), -leads[0].min()
    bounds = {
        method: replace(look.bound(method, leader, critical[leader]), low=float(low[row]), high=float(high))
        for row, method in enumerate(rest, 1)
    }
    test.behind = {method: _within_known(test, bound, method, leader) for method, bound in bounds.items()}


def _within_known(test: SequentialTest, bound: Bound, method: str, leader: str) -> Bound:
    """A difference from the leader within what was told of the two against local training, if one of them is that.

    All statements hold together, so both intervals do.
    """
    ahead, behind = test.over_local.get(method), test.over_local.get(leader)
    if ahead is not None and ahead.against == leader:
        known = ahead.interval
    elif behind is not None and behind.against == method and isinstance(behind.interval, Bound):
        known = -behind.interval
    else:
        return bound
    assert known.low is not None
    assert known.high is not None
    low, high = max(bound.low, known.low), min(bound.high, known.high)
    return replace(bound, low=low, high=high) if low <= high else bound


def _ending(test: SequentialTest, seeds: int, rules: Rules) -> Ending | None:
    """The answer to who is best, if no more seeds are to be spent on it."""
    bounds, margin = list(test.behind.values()), rules.margin
    test.needs_samples = {(question, method) for question, method in test.needs_samples if question != "best"}
    if not bounds:
        return "winner"
    within = all(bound.high < margin for bound in bounds)
    if within and all(-margin < bound.low for bound in bounds):
        return "tie"
    if seeds < rules.looks()[-1][0]:
        chances = np.array([_chances(bound, len(bounds), rules) for bound in bounds]).min(0)
        if seeds < GIVING_UP_FROM or chances[0] >= LEAST_CHANCE or (not within and chances[1] >= LEAST_CHANCE):
            return None
    if not within and any(no_seeds_decide(bound, len(bounds), rules) for bound in bounds):
        test.needs_samples.add(("best", test.candidates[0]))
    return "within" if within else "open"


def _chance_over_local(bound: Bound, contrasts: int, rules: Rules) -> float:
    """The predicted probability that a contrast with local training is decided at the maximum."""
    mean, spread, half = _at_maximum(bound, 2 * contrasts, rules)
    inside = max(0.0, rules.margin - half)
    below = special.ndtr((np.array([-half, -inside, inside, half]) - mean) / spread)
    return float(min(1.0, below[0] + below[2] - below[1] + 1 - below[3]))


def _chances(bound: Bound, contrasts: int, rules: Rules) -> tuple[float, float]:
    """The predicted probabilities that a candidate is out or tied with the leader, and not ahead by the margin."""
    mean, spread, half = _at_maximum(bound, contrasts, rules)
    inside = max(0.0, rules.margin - half)
    below = special.ndtr((np.array([-half, -inside, inside, rules.margin - half]) - mean) / spread)
    return float(min(1.0, below[0] + below[2] - below[1])), float(below[3])


def _at_maximum(bound: Bound, contrasts: int, rules: Rules) -> tuple[float, float, float]:
    """Mean and standard deviation of a difference's mean at the maximum, given its present one, and half its interval.

    The prior is flat; the interval is that of Bonferroni. What comes from test samples stays.
    """
    most, level = rules.looks()[-1]
    variance = max(0.0, bound.error**2 - bound.samples**2) * bound.seeds  # of one seed
    spread = np.sqrt(variance * max(0.0, 1 / bound.seeds - 1 / most))
    half = special.stdtrit(most - 1, 1 - level / contrasts) * np.sqrt(variance / most + bound.samples**2)
    return bound.mean, max(float(spread), 1e-12), float(half)


def no_seeds_decide(bound: Bound, contrasts: int, rules: Rules) -> bool:
    """Whether the interval of this mean would be undecided with any number of seeds over the same test samples."""
    half = float(special.ndtri(1 - rules.looks()[-1][1] / contrasts)) * bound.samples
    return abs(bound.mean) <= half and abs(bound.mean) + half >= rules.margin


def sequential_test_of(plan: Plan, scores: FinalScores) -> SequentialTest:
    """The sequential test of a study that adds seeds until it is decided. References take no part."""
    assert plan.stopping_rule is not None
    rules = Rules(plan.stopping_rule["margin"] / scores.metric.factor, int(plan.stopping_rule["most"]))
    labels = [label for label in plan.labels() if label not in plan.references]
    failed = {entry.label for entry in plan.failed() if entry.role == "final"}
    failed |= {label for label in labels if lacks_score(plan, scores, label)}
    by_label = {label: scores_by_seed(plan, scores, label) for label in labels}
    return judge(by_label, rules, failed, samples=_deviations_by_seed(plan, scores, by_label))


def _deviations_by_seed(
    plan: Plan, scores: FinalScores, values: Mapping[str, Sequence[float]]
) -> dict[str, list[Deviations]] | None:
    """By how much each test sample moves each of these scores; None where a run kept no outcomes.

    values: the scores that are used, by method.
    """
    deviations = {}
    for label, used in values.items():
        made = scores.seed_deviations(label, _point_of(plan, scores, label), range(len(used)))
        if used and made is None:
            return None
        deviations[label] = made or []
    return deviations


def _point_of(plan: Plan, scores: FinalScores, label: str) -> str:
    """The point of a method's scores: the study's, or after aggregation where it lacks that."""
    return plan.point if (label, plan.point, LAST) in scores.rows else "after_agg"


def scores_by_seed(plan: Plan, scores: FinalScores, label: str) -> list[float]:
    """The scores of the first seeds without a gap, higher is better; of finished runs only."""
    known, done = _known_scores(plan, scores, label), _done_seeds(plan, label)
    return [known[seed] for seed in takewhile(lambda seed: seed in known and seed in done, count())]


def lacks_score(plan: Plan, scores: FinalScores, label: str) -> bool:
    """Whether a finished run has no finite score, which no further run would change."""
    return not _done_seeds(plan, label) <= _known_scores(plan, scores, label).keys()


def _done_seeds(plan: Plan, label: str) -> set[int]:
    return {entry.seed for entry in plan.final(label) if entry.status == "done"}


def _known_scores(plan: Plan, scores: FinalScores, label: str) -> dict[int, float]:
    """The finite scores by seed, higher is better."""
    rows = scores.rows.get((label, _point_of(plan, scores, label), LAST))
    if rows is None:
        return {}
    values = (1 if scores.metric.higher else -1) * rows[f"test_{scores.metric.name}"]
    return {int(seed): float(value) for seed, value in zip(rows["seed"], values, strict=True) if np.isfinite(value)}
