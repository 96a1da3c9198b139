"""The evaluation of a part of a row: terms of arms, a rule, several cases, both evaluation points.

A term is an arm's label (its accuracy), a list of two terms (first minus second), or a mapping with one key:
`mean` of terms, the `best` of labels on the choosing seed, the `rank_correlation` of two terms, or a reading of
readings.py or proxies.py with the label, or a list of labels, as `of`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fedbench.results.quantities import ranges
from fedbench.results.statistics import LEAST_SEEDS, NoValue
from fedbench.results.tables import BEST_TEST, LAST
from fedbench_papers.claims import verdicts
from fedbench_papers.claims.properties import PROPERTIES
from fedbench_papers.claims.proxies import PROXY_FUNCTIONS, rank_correlation
from fedbench_papers.claims.readings import READING_FUNCTIONS, Arms, accuracy
from fedbench_papers.claims.verdicts import Verdict

READINGS = READING_FUNCTIONS | PROXY_FUNCTIONS
OTHER_POINT_OF_CLAIM = {"agg": "fit", "fit": "agg"}
PART_KEYS = ("rule", "cases", "some", "most", "point", "shown", "check")
"""Keys of a part that are not options of its check."""


@dataclass(frozen=True)
class PartVerdict:
    """A part of a row. case: of several, or None; judged: whether it counts. other: the verdict at the other point if
    it differs; best: the estimate at the best round on test, never decisive.
    """

    part: str
    case: str
    rule: str
    point: str
    delta: float | None
    verdict: Verdict
    judged: bool = True
    other: str = ""
    best: float | None = None


@dataclass(frozen=True)
class Terms:
    """arms: by label. pick: the label of the best arm on the choosing seed. choice: of the round."""

    arms: Arms
    pick: Callable[[Sequence[str]], str]
    point: str
    choice: str = LAST

    def value(self, term: Any) -> pd.Series:
        """A reading over (seed, client)."""
        if isinstance(term, str):
            return accuracy(self.arms[term], self.point, self.choice)
        if isinstance(term, list):
            first, second = term
            return verdicts.difference(self.value(first), self.value(second))
        ((word, inside),) = term.items()
        if word == "mean":
            return pd.concat([self.value(own) for own in inside], axis=1).dropna().mean(axis=1)
        if word == "best":
            return self.value(self.pick(inside))
        if word == "rank_correlation":
            return rank_correlation(*map(self.value, inside))
        more = {"point": self.point, **{key: value for key, value in inside.items() if key != "of"}}
        labels = inside["of"]
        runs = self.arms[labels] if isinstance(labels, str) else [self.arms[label] for label in labels]
        return READINGS[word](runs, **more)


def judge_row(
    parts: Mapping[str, Mapping[str, Any]], arms: Arms, pick: Callable[[Sequence[str]], str]
) -> list[PartVerdict]:
    """Every part of a row, each followed by its cases."""
    return [line for name, part in parts.items() for line in judge_part(name, part, arms, pick)]


def judge_part(
    name: str, part: Mapping[str, Any], arms: Arms, pick: Callable[[Sequence[str]], str]
) -> list[PartVerdict]:
    """The part, followed by its cases if it has several, which do not count separately."""
    rule = part["rule"]
    terms = Terms(arms, pick, part.get("point", "none" if rule == "P" else "agg"))
    cases = {case: {**part, **tree} for case, tree in part.get("cases", {"": {}}).items()}
    counts = rule != "shown" and not part.get("shown")
    results = others = [verdict_of(tree, terms) for tree in cases.values()]
    if terms.point in OTHER_POINT_OF_CLAIM and rule != "shown":
        other_terms = replace(terms, point=OTHER_POINT_OF_CLAIM[terms.point])
        others = [verdict_of(tree, other_terms) for tree in cases.values()]
    lines = [
        PartVerdict(
            name, case, rule, terms.point, tree.get("delta"), one, counts, other_word(one, two), best_round(tree, terms)
        )
        for (case, tree), one, two in zip(cases.items(), results, others, strict=True)
    ]
    if len(lines) == 1:
        return lines
    one, two = verdict_of_cases(part, results), verdict_of_cases(part, others)
    return [
        PartVerdict(name, "", rule, terms.point, None, one, counts, other_word(one, two)),
        *(replace(line, judged=False) for line in lines),
    ]


def verdict_of_cases(part: Mapping[str, Any], cases: Sequence[Verdict]) -> Verdict:
    """The verdict on several cases; if all must hold and all were tested, p is the largest."""
    if "some" in part:
        return Verdict(verdicts.some_of(cases, part["some"]), note=f"{part['some']} of {len(cases)} must hold")
    if "most" in part:
        return Verdict(verdicts.most_of(cases, part["most"]), note=f"{part['most']} of {len(cases)} must hold")
    word, values = verdicts.all_of(cases), [one.p for one in cases if one.p is not None]
    p = max(values) if len(values) == len(cases) else None
    return Verdict(word, p=p, note="all must hold", p_fails=verdicts.first_of([one.p_fails for one in cases]))


def other_word(one: Verdict, other: Verdict) -> str:
    return "" if one.word == other.word else other.word


def verdict_of(part: Mapping[str, Any], terms: Terms) -> Verdict:
    """The verdict on one case at one point; undecided if runs are too short for its readings.

    Seeds in which a method is not at work are left out; if these are half of all, or too few are left, there is none.
    """
    terms, labels, seeds = without_degenerate(part, terms)
    numbers = ranges(sorted(seeds))
    if seeds and not terms.arms:
        return Verdict(verdicts.DEGENERATE, note=f"degenerate: {labels}, seeds {numbers}")
    try:
        verdict = apply_rule(part, terms)
    except NoValue:
        verdict = Verdict("" if part["rule"] == "shown" else verdicts.UNDECIDED, note="too few rounds to read this")
    return with_note(verdict, f"seeds {numbers} left out, where {labels} is degenerate" if seeds else "")


def without_degenerate(part: Mapping[str, Any], terms: Terms) -> tuple[Terms, str, frozenset[int]]:
    """The terms of a case without the seeds in which a method is not at work, the arms where it is so, and the seeds.

    Without arms if these are half of all seeds, or if too few are left. What is shown only keeps all.
    """
    read = {label: terms.arms[label] for label in labels_of(terms_in(part), terms.arms)}
    degenerate = frozenset[int]().union(*(arm.degenerate for arm in read.values()))
    if not degenerate or part["rule"] == "shown":
        return terms, "", frozenset()
    seeds = frozenset[int]().union(*(arm.seeds for arm in read.values()))
    is_left = len(seeds - degenerate) >= LEAST_SEEDS and 2 * len(degenerate) < len(seeds)
    arms = {label: arm.without(degenerate) for label, arm in terms.arms.items()} if is_left else {}
    labels = ", ".join(label for label, arm in read.items() if arm.degenerate)
    return replace(terms, arms=arms), labels, degenerate


def terms_in(part: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a part that name arms: those of its cases are entries of each case."""
    return {key: inside for key, inside in part.items() if key not in PART_KEYS}


def labels_of(term: Any, arms: Arms) -> list[str]:
    """The labels of the arms that a part or a term reads, each once."""
    if isinstance(term, str):
        return [term] if term in arms else []
    inside = term.values() if isinstance(term, Mapping) else term if isinstance(term, list) else ()
    return list(dict.fromkeys(label for own in inside for label in labels_of(own, arms)))


def apply_rule(part: Mapping[str, Any], terms: Terms) -> Verdict:
    """The verdict on one case at one point. Raises NoValue."""
    rule, delta, value = part["rule"], part.get("delta", 0.0), terms.value
    if rule == "P":
        return PROPERTIES[part["check"]](terms.arms, terms.point, **terms_in(part))
    if rule == "K":
        return verdicts.ordered({label: value(label) for label in part["order"]}, part["order"], part["least"])
    if rule == "M":
        return verdicts.monotone([value(term) for term in part["options"]], delta)
    if rule == "S":
        verdict = verdicts.peaked(value(part["low"]), value(part["middle"]), value(part["high"]), delta)
        return with_note(verdict, peak_of(part, terms))
    if rule == "shown":
        return Verdict("", verdicts.of_seeds(value(part["of"])))
    decide = {"B": verdicts.better, "T": verdicts.alike, "N": verdicts.never_below}[rule]
    return with_note(decide(value(part["of"]), delta), picked_note(part["of"], terms))


def with_note(verdict: Verdict, more: str) -> Verdict:
    """The verdict with a further note."""
    return replace(verdict, note="; ".join(filter(None, (verdict.note, more))))


def peak_of(part: Mapping[str, Any], terms: Terms) -> str:
    """The means of all options, best first."""
    labels = [part["low"], part["middle"], part["high"], *part.get("others", ())]
    means = {label: verdicts.of_seeds(terms.value(label)).mean for label in labels}
    order = sorted(means, key=lambda label: -means[label])
    return "best " + ", ".join(f"{label} {means[label]:.1f}" for label in order)


def picked_note(term: Any, terms: Terms) -> str:
    """Names the best options on the choosing seed."""
    inside = term if isinstance(term, list) else []
    chosen = [terms.pick(own["best"]) for own in inside if isinstance(own, Mapping) and "best" in own]
    return f"best on the choosing seed: {', '.join(chosen)}" if chosen else ""


def best_round(part: Mapping[str, Any], terms: Terms) -> float | None:
    """The estimate with every arm at its best round on test; None unless the judged part reads plain accuracies."""
    is_plain = part["rule"] in ("B", "T", "N") and only_accuracies(part["of"])
    terms, _, _ = without_degenerate(part, terms)
    if not is_plain or not terms.arms or terms.point not in OTHER_POINT_OF_CLAIM:
        return None
    return verdicts.of_seeds(replace(terms, choice=BEST_TEST).value(part["of"])).mean


def only_accuracies(term: Any) -> bool:
    """Whether a term has accuracies only."""
    if isinstance(term, Mapping):
        ((word, inside),) = term.items()
        return word == "best" or (word == "mean" and all(map(only_accuracies, inside)))
    return isinstance(term, str) or all(map(only_accuracies, term))
