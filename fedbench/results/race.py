"""A comparison that adds seeds until it is decided: which statements hold after which look, and who needs more seeds.

Looks are at fixed numbers of seeds. Each spends a share of two error levels of 2.5 %, one for the contrasts with local
training and one for the question of the best method, so that all statements of all looks together are false with a
probability of at most 5 % (union bound; given the tuned points, and if differences over seeds are jointly normal).
Everything follows from the scores of the first seeds: a study that is stopped and continued comes to the same
statements, and the order in which runs end decides nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Literal

import numpy as np
from scipy import stats

from fedbench.results.plan import Plan
from fedbench.results.rotations import ROTATIONS, Rotated
from fedbench.results.tables import BASELINE, LAST, REFERENCES, FinalScores

LOOKS = (5, 8, 12, 18, 27, 40, 60, 90)
"""Numbers of seeds after which a race is judged."""
WEIGHTS = (0.05, 0.10, 0.20, 0.25, 0.20, 0.10, 0.05, 0.025)
"""Shares of the error levels that the looks spend; at most 1 in all, so that a maximum may be raised later."""
LEVEL = 0.025
"""Error level of each of the two questions."""
PATIENCE = 12
"""Seeds from which on a question is given up that the maximum would hardly decide."""
LEAST_CHANCE = 0.2
"""Chance of a decision below which it is given up."""
OUTLYING = 5.0
"""Median absolute deviations from the median beyond which a seed is an outlier."""

Verdict = Literal["better", "worse", "equal"]
Ending = Literal["winner", "tie", "within", "open"]


@dataclass(frozen=True)
class Rules:
    """margin: a difference that is too small to matter, in units of the metric; most: the maximum number of seeds."""

    margin: float
    most: int

    def looks(self) -> list[tuple[int, float]]:
        """Numbers of seeds with the error level of each question."""
        return [(n, LEVEL * weight) for n, weight in zip(LOOKS, WEIGHTS, strict=True) if n <= self.most]


@dataclass(frozen=True)
class Bound:
    """A mean paired difference over n seeds with its standard error and the ends of its simultaneous interval."""

    mean: float
    low: float
    high: float
    error: float
    seeds: int


UNKNOWN = Bound(np.nan, -np.inf, np.inf, np.nan, 0)


@dataclass(frozen=True)
class Told:
    """A statement on a method against local training, and the interval on which it rests."""

    verdict: Verdict
    bound: Bound


@dataclass
class Race:
    """The state of a comparison after its last complete look.

    over_local: what was told, by method; undecided: the interval at the last look of the other ones; given_up: of
    these, those with hardly a chance, which it is; withheld: verdicts that a single outlying seed decides, by question
    (`local` or `best`) and method, with the reason. candidates: who may be the best, the leader first; out: who is not,
    with the method that is better. ending: the answer to who is best; None while seeds are added. behind: of
    candidates, their difference from the leader. needs: the number of seeds that each method needs next; seeds: those
    used, by method.
    """

    look: int = 0
    over_local: dict[str, Told] = field(default_factory=dict)
    undecided: dict[str, Bound] = field(default_factory=dict)
    given_up: dict[str, float] = field(default_factory=dict)
    withheld: dict[tuple[str, str], str] = field(default_factory=dict)
    candidates: list[str] = field(default_factory=list)
    out: dict[str, tuple[str, Bound]] = field(default_factory=dict)
    ending: Ending | None = None
    behind: dict[str, Bound] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)

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
) -> Race:
    """The race as far as the scores go.

    scores: of every method, higher is better, in the order of the seeds, which is the same for all; a method may have
    fewer than others. failed: methods that lack a seed for good, which take no part.
    """
    methods = [method for method in scores if method not in failed]
    race = Race(candidates=list(methods))
    race.undecided = {}
    if baseline in methods:
        race.undecided = {method: UNKNOWN for method in methods if method != baseline}
    for n, level in rules.looks():
        running = _running(race, baseline)
        if not running:
            break
        if any(len(scores[method]) < n for method in running):
            race.needs = dict.fromkeys(running, n)
            return race
        rotated = Rotated(np.array([scores[method][:n] for method in running]).T, rotations)
        _look(race, rotated, running, rules, level, baseline)
        race.look = n
        race.seeds |= dict.fromkeys(running, n)
    race.needs = {}
    return race


def _running(race: Race, baseline: str) -> list[str]:
    """Methods that need further seeds: open contrasts, local training while there are some, and candidates."""
    wanted = [method for method in race.undecided if method not in race.given_up]
    asked = set(wanted) | ({baseline} if wanted else set()) | (set(race.candidates) if race.ending is None else set())
    if asked <= {baseline}:
        return []
    order = [baseline, *race.undecided, *race.over_local, *race.candidates]
    return [method for method in dict.fromkeys(order) if method in asked]


def _look(race: Race, rotated: Rotated, running: Sequence[str], rules: Rules, level: float, baseline: str) -> None:
    place = {method: number for number, method in enumerate(running)}
    last = rotated.seeds == rules.looks()[-1][0]
    wanted = [method for method in race.undecided if method in place and method not in race.given_up]
    if wanted and baseline in place:
        critical = rotated.critical([place[method] for method in wanted], place[baseline], level)
        for method in wanted:
            _look_over_local(race, method, rotated, place[method], place[baseline], critical, rules)
        if not last and rotated.seeds >= PATIENCE:
            for method in [method for method in wanted if method in race.undecided]:
                chance = _chance_over_local(race.undecided[method], len(wanted), rules)
                if chance < LEAST_CHANCE:
                    race.given_up[method] = chance
    if race.ending is None:
        _look_for_best(race, rotated, place, level)
        race.ending = _ending(race, rotated.seeds, rules)


def _look_over_local(
    race: Race, method: str, rotated: Rotated, own: int, local: int, critical: float, rules: Rules
) -> None:
    race.undecided[method] = bound = _bound(rotated, own, local, critical)
    race.withheld.pop(("local", method), None)
    verdict = verdict_of(bound, rules.margin)
    if verdict is None:
        return
    if _one_seed_decides(rotated, own, local, lambda other: verdict_of(other, rules.margin) == verdict, critical):
        race.withheld["local", method] = verdict
    else:
        race.over_local[method] = Told(verdict, bound)
        del race.undecided[method]


def _look_for_best(race: Race, rotated: Rotated, place: Mapping[str, int], level: float) -> None:
    """Takes out whom another candidate beats.

    Every candidate is compared with all others by a family of its own, one-sided. A statement is false only if it
    contradicts the family of the method that is truly best, so the level is that of one family.
    """
    columns = {method: place[method] for method in race.candidates}
    bounds: dict[str, dict[str, Bound]] = {}
    for method, own in columns.items():
        others = {other: column for other, column in columns.items() if other != method}
        critical = rotated.critical([*others.values()], own, level, two_sided=False)
        bounds[method] = {other: _bound(rotated, column, own, critical) for other, column in others.items()}
        ahead = max(bounds[method].items(), key=lambda pair: pair[1].low, default=None)
        race.withheld.pop(("best", method), None)
        if ahead is None or ahead[1].low <= 0:
            continue
        if _one_seed_decides(rotated, columns[ahead[0]], own, lambda other: other.low > 0, critical):
            race.withheld["best", method] = f"behind {ahead[0]}"
        else:
            race.out[method] = ahead
    means = rotated.scores.mean(0)
    race.candidates = sorted((m for m in columns if m not in race.out), key=lambda m: -means[columns[m]])
    leader, *rest = race.candidates
    # That a candidate is ahead of the leader by at most so much follows from the candidate's own family.
    race.behind = {other: replace(bounds[leader][other], high=-bounds[other][leader].low) for other in rest}


def _ending(race: Race, seeds: int, rules: Rules) -> Ending | None:
    """The answer to who is best, if no more seeds are to be spent on it."""
    bounds, margin = list(race.behind.values()), rules.margin
    if not bounds:
        return "winner"
    if all(-margin < bound.low and bound.high < margin for bound in bounds):
        return "tie"
    within = all(bound.high < margin for bound in bounds)
    if seeds < rules.looks()[-1][0]:
        if seeds < PATIENCE:
            return None
        winner, tie, inside = np.min([_chances(bound, len(bounds), rules) for bound in bounds], axis=0)
        if max(winner, tie) >= LEAST_CHANCE or (not within and inside >= LEAST_CHANCE):
            return None
    return "within" if within else "open"


def verdict_of(bound: Bound, margin: float) -> Verdict | None:
    """What an interval says about a difference."""
    if bound.low > 0:
        return "better"
    if bound.high < 0:
        return "worse"
    return "equal" if -margin < bound.low and bound.high < margin else None


def _bound(rotated: Rotated, of: int, minus: int, critical: float) -> Bound:
    (mean,), (error,) = rotated.differences([of], minus)
    half = critical * error if error else 0.0
    return Bound(float(mean), float(mean - half), float(mean + half), float(error), rotated.seeds)


def _one_seed_decides(rotated: Rotated, of: int, minus: int, holds: Callable[[Bound], bool], critical: float) -> bool:
    """Whether a statement does not hold without the seeds that lie far from the others."""
    values = rotated.scores[:, of] - rotated.scores[:, minus]
    away = np.abs(values - np.median(values))
    typical = float(np.median(away))
    kept = values[away <= OUTLYING * typical] if typical else values
    if len(kept) == len(values):
        return False
    mean, half = float(kept.mean()), critical * float(kept.std(ddof=1)) / np.sqrt(len(kept))
    return not holds(Bound(mean, mean - half, mean + half, half / critical, len(kept)))


def _chance_over_local(bound: Bound, contrasts: int, rules: Rules) -> float:
    """The predicted probability that a contrast with local training is decided at the maximum."""
    mean, spread, half = _at_maximum(bound, 2 * contrasts, rules)
    inside = max(0.0, rules.margin - half)
    told = stats.norm.sf(half, mean, spread) + stats.norm.cdf(-half, mean, spread)
    equal = stats.norm.cdf(inside, mean, spread) - stats.norm.cdf(-inside, mean, spread)
    return float(min(1.0, told + equal))


def _chances(bound: Bound, contrasts: int, rules: Rules) -> tuple[float, float, float]:
    """The predicted probabilities that a candidate is out, tied with the leader, or not ahead by the margin."""
    mean, spread, half = _at_maximum(bound, contrasts, rules)
    inside = max(0.0, rules.margin - half)
    below = stats.norm.cdf([-half, inside, -inside, rules.margin - half], mean, spread)
    return float(below[0]), float(below[1] - below[2]), float(below[3])


def _at_maximum(bound: Bound, contrasts: int, rules: Rules) -> tuple[float, float, float]:
    """Mean and standard deviation of a difference's mean at the maximum, given its present one, and half its interval.

    The prior is flat; the interval is that of Bonferroni.
    """
    (most, level), deviation = rules.looks()[-1], bound.error * np.sqrt(bound.seeds)
    spread = deviation * np.sqrt(max(0.0, 1 / bound.seeds - 1 / most))
    half = stats.t.ppf(1 - level / contrasts, most - 1) * deviation / np.sqrt(most)
    return bound.mean, max(float(spread), 1e-12), float(half)


def race_of(plan: Plan, scores: FinalScores) -> Race:
    """The race of a study that adds seeds until it is decided. References take no part."""
    assert plan.race is not None
    rules = Rules(plan.race["margin"] / scores.metric.factor, int(plan.race["most"]))
    labels = [label for label in plan.labels() if label not in REFERENCES]
    failed = {entry.label for entry in plan.failed() if entry.role == "final"}
    own = {label: scores_by_seed(plan, scores, label) for label in labels}
    return judge(own, rules, failed)


def scores_by_seed(plan: Plan, scores: FinalScores, label: str) -> list[float]:
    """The scores of the first seeds without a gap, higher is better; of finished runs only."""
    done = {entry.seed for entry in plan.final(label) if entry.status == "done"}
    rows = scores.rows.get((label, plan.point, LAST), scores.rows.get((label, "after_agg", LAST)))
    if rows is None:
        return []
    sign = 1 if scores.metric.higher else -1
    known = dict(zip(rows["seed"], sign * rows[f"test_{scores.metric.name}"], strict=True))
    return [float(known[seed]) for seed in takewhile(lambda seed: seed in known and seed in done, count())]
