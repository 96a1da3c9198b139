"""The words of a race: who is best, who is better than local training, and what is open, each with its interval."""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from fedbench.config.words import plural
from fedbench.report.answer import doubts, doubts_of_lead, points
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import join_words, sentence
from fedbench.results.race import Bound, Race
from fedbench.results.statistics import ends_of
from fedbench.results.tables import BASELINE, LAST, REFERENCES
from fedbench.tasks import Metric

LOCAL_WORDS = {
    "better": "better than local training",
    "worse": "worse than local training",
    "equal": "equal to local training within {margin}",
}


def race_answer(study: Study, race: Race) -> str:
    """The answer in one sentence."""
    if race.leader is None:
        return "No method has been evaluated yet."
    leader, rest, margin = race.leader, race.candidates[1:], margin_text(study)
    if not race.look and not race.needs:
        return f"Nothing can be decided: there is no run to compare {leader} with."
    if not race.look:
        return f"Not decided yet: the first look is at {max(race.needs.values())} seeds."
    reached = f"{leader} reached {study.metric.with_unit(study.final_score(leader))} {POINT_NAMES[study.point]}"
    seeds = plural(race.seeds[leader], "seed")
    if race.ending is None:
        return f"Not decided after {seeds}: {reached}, and {join_words(rest)} may still be the best."
    if race.ending == "winner":
        if doubt := doubts_of_lead(study, leader, [*race.out]):
            return f"{reached} and beats all others, decided after {seeds}; but {doubt}, so no winner is named."
        return f"{reached}: it is the best, decided after {seeds}."
    if race.ending == "tie":
        return f"{reached}; equal to it within {margin}: {join_words(rest)}, decided after {seeds}."
    if race.ending == "within":
        return f"{reached} and is best or within {margin} of the best; {join_words(rest)} may be better ({seeds})."
    return f"Undecided: {reached}, but {join_words(rest)} may be better by {margin} or more ({seeds})."


def race_notes(study: Study, race: Race) -> list[str]:
    """The lines under the answer: groups with their intervals, what is open and why, and the guarantee."""
    metric, lines = study.metric, list[str]()
    if race.ending in ("tie", "within", "open") or (race.ending is None and race.look):
        shown = [f"{other} ({_span(metric, race.behind[other])})" for other in race.candidates[1:]]
        lines.append(f"Difference from {race.leader}: {join_words(shown)}.")
    for verdict, words in LOCAL_WORDS.items():
        told = {method: found for method, found in race.over_local.items() if found.verdict == verdict}
        fine = {method: doubts(study, method, BASELINE, found.bound.mean) for method, found in told.items()}
        shown = [f"{m} ({_span(metric, told[m].bound)})" for m, doubt in fine.items() if not doubt]
        if shown:
            lines.append(f"{sentence(words.format(margin=margin_text(study)))}: {join_words(shown)}.")
        lines += [f"{m}: {words.format(margin=margin_text(study))}, but {doubt}." for m, doubt in fine.items() if doubt]
    open_ones = [method for method in race.undecided if method not in race.given_up and race.look]
    if open_ones:
        shown = [f"{method} ({_span(metric, race.undecided[method])})" for method in open_ones]
        lines.append(f"Undecided against local training: {join_words(shown)}.")
    lines += _given_up(study, race)
    for (question, method), verdict in race.withheld.items():
        what = f"{method}, {verdict}{' than local training' if question == 'local' else ''}"
        lines.append(f"Withheld, because it does not hold without an outlying seed: {what}.")
    if not race.is_over and race.look:
        lines.append(f"Stopped before it was decided; the same command continues with {race_next(race)}.")
    return [*lines, guarantee(study)] if race.look else lines


def _given_up(study: Study, race: Race) -> list[str]:
    """What is given up and why, and what no number of seeds decides."""
    most, lines = int((study.plan.race or {})["most"]), []
    few = f"because {most} seeds would decide it with a probability below 20\u00a0%"
    for why, by_samples in ((few, False), (f"because {NO_SEEDS}", True)):
        own = [method for method in race.given_up if (("local", method) in race.needs_samples) == by_samples]
        if own:
            shown = [f"{method} ({_span(study.metric, race.undecided[method])})" for method in own]
            lines.append(f"Given up against local training, {why}: {join_words(shown)}.")
    if race.ending == "open" and any(question == "best" for question, _ in race.needs_samples):
        lines.append(f"Who is best stays open, because {NO_SEEDS}.")
    return lines


NO_SEEDS = "more seeds cannot decide this over the same test samples; more test samples can"


def guarantee(study: Study) -> str:
    """What the statements of a study promise together, and under which premises."""
    return (
        "All these statements together, over all looks, are false with a probability of at most 5\u00a0%, "
        f"{premises(study)}. The intervals are simultaneous. A study that stops early tends to exaggerate differences."
    )


def premises(study: Study) -> str:
    """What an error probability takes as given."""
    chosen = "the chosen candidates and " if any(study.plan.points(label) for label in study.plan.labels()) else ""
    return f"given {chosen}the clients, and if differences over seeds are normal"


def race_next(race: Race) -> str:
    """The next look in words."""
    return f"{max(race.needs.values())} seeds of {plural(len(race.needs), 'method')}"


def race_order(study: Study, race: Race) -> list[str]:
    """Methods by their paired difference from the leader over the seeds that both have, references last."""
    labels = [label for label in study.ordered if label not in REFERENCES]
    leader = race.leader if race.leader in labels else None
    if leader is None or not race.look:
        return study.ordered

    def behind(label: str) -> float:
        paired = study.scores.paired_clients(label, leader, study.point, LAST)
        return float(paired.groupby("seed")["difference"].mean().mean()) if len(paired) else -inf

    candidates = [label for label in race.candidates if label in labels]
    others = sorted((label for label in labels if label not in candidates), key=lambda label: -behind(label))
    return [*candidates, *others, *(label for label in study.ordered if label in REFERENCES)]


RACE_HEADS = ("seeds", "over local", "against local", "from the best", "who is best")


@dataclass(frozen=True)
class RaceVerdicts:
    """A method's verdicts in a race: against local training, and on who is best, each with its interval."""

    metric: Metric
    seeds: int
    over_local: Bound | None
    against_local: str
    from_best: Bound | None
    who_is_best: str
    may_be_best: bool

    def cells(self) -> list[str]:
        """As in the table."""
        bounds = ["" if bound is None else _cell(self.metric, bound) for bound in (self.over_local, self.from_best)]
        return [str(self.seeds or ""), bounds[0], self.against_local, bounds[1], self.who_is_best]

    def over_local_text(self) -> str:
        """The difference from local training with its interval."""
        return "" if self.over_local is None else _cell(self.metric, self.over_local)

    def differences(self) -> dict[str, float | None]:
        """The same differences under the names that they have in studies with a fixed number of seeds."""
        ahead = None
        if self.from_best is not None:
            own = self.from_best
            ahead = Bound(-own.mean, -own.high, -own.low, own.error, own.seeds, own.samples)
        return {**ends_of("over_local", self.over_local), **ends_of("best_ahead", ahead)}

    def as_columns(self) -> dict[str, Any]:
        """As in table.csv."""
        return {
            "race_seeds": self.seeds,
            **ends_of("race_over_local", self.over_local),
            "race_against_local": self.against_local,
            **ends_of("race_from_best", self.from_best),
            "race_who_is_best": self.who_is_best,
        }


def race_verdicts(study: Study, race: Race, label: str) -> RaceVerdicts:
    """What a race says of a method."""
    over_local, against = _against_local(study, race, label)
    from_best, best = _who_is_best(study, race, label)
    tied = race.look > 0 and label in race.candidates[1:]
    return RaceVerdicts(study.metric, race.seeds.get(label, 0), over_local, against, from_best, best, tied)


def _against_local(study: Study, race: Race, label: str) -> tuple[Bound | None, str]:
    told, bound = race.over_local.get(label), race.undecided.get(label)
    if told is not None and told.verdict == "equal":
        return told.bound, f"equal within {margin_text(study)}"
    if told is not None:
        return told.bound, "withheld" if doubts(study, label, BASELINE, told.bound.mean) else told.verdict
    if bound is None or not bound.seeds:
        return None, ""
    if ("local", label) in race.withheld:
        return bound, "withheld"
    return bound, "given up" if label in race.given_up else "open"


def _who_is_best(study: Study, race: Race, label: str) -> tuple[Bound | None, str]:
    """The difference to the leader, or to the method that beats it, and the verdict."""
    if label in race.out:
        # Somebody is better; that it is the method that is ahead the most is not certain.
        ahead, bound = race.out[label]
        words = "withheld" if doubts(study, ahead, label, bound.mean) else "not the best"
        return Bound(-bound.mean, -inf, -bound.low, bound.error, bound.seeds), words
    if label not in race.candidates or not race.look:
        return None, ""
    margin = margin_text(study)
    if label == race.leader:
        led = {"winner": "best", "tie": "best, tied", "within": f"best or within {margin}", "open": "open"}
        return None, led.get(race.ending or "", "open")
    followed = {"tie": f"equal within {margin}", "within": "may be better"}
    return race.behind[label], followed.get(race.ending or "", "open")


def margin_text(study: Study) -> str:
    """`1 point` or `0.05`."""
    margin = (study.plan.race or {})["margin"]
    return f"{margin:g}{points(study.metric) if margin != 1 else points(study.metric).rstrip('s')}"


def _span(metric: Metric, bound: Bound) -> str:
    """`-0.2 to +0.5`."""
    return _ends(metric, bound) if bound.seeds else "not compared yet"


def _cell(metric: Metric, bound: Bound) -> str:
    return f"{metric.difference(bound.mean)} ({_ends(metric, bound)})"


def _ends(metric: Metric, bound: Bound) -> str:
    if not isfinite(bound.low):
        return f"at most {metric.difference(bound.high)}"
    return f"{metric.difference(bound.low)} to {metric.difference(bound.high)}"
