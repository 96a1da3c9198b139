"""The texts of a comparison: who leads, who cannot be told apart, and which differences the seeds can detect."""

from collections.abc import Sequence

from fedbench.config.words import plural
from fedbench.report.answer import (
    answer,
    doubts,
    doubts_of_lead,
    equal_points,
    few_seeds,
    points,
    reference_lines,
    span,
    tuning_doubts,
    undecidable,
)
from fedbench.report.evidence import evidence_lines
from fedbench.report.leaderboard import LeaderboardRow, reasons
from fedbench.report.race import race_answer, race_notes
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import join_words, p_text, sentence
from fedbench.results.contrasts import Contrast
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE, REFERENCES
from fedbench.tasks import Metric

UNDECIDED = "undecided"


def said_of(study: Study, rows: Sequence[LeaderboardRow]) -> tuple[str, list[str]]:
    """The answer of a study in one sentence, and the lines under it. rows: the leaderboard, if methods are compared."""
    if study.plan.subject is None or study.race is not None:
        return comparison_answer(study, rows), comparison_notes(study, rows)
    return answer(study), [*reference_lines(study), *evidence_lines(study)]


def comparison_answer(study: Study, rows: Sequence[LeaderboardRow]) -> str:
    """The answer in one sentence; names a winner only if it beats every rival and there is no doubt."""
    if study.race is not None:
        return race_answer(study, study.race)
    rivals = [row for row in rows[1:] if row.label not in REFERENCES]
    if not rows:
        return "Every method failed." if study.failed_methods else "No method has been evaluated yet."
    first = rows[0]
    reached = f"{first.label} reached {study.metric.with_unit(first.score.mean)} {POINT_NAMES[study.point]}"
    if not rivals or rivals[0].behind is None:
        return f"{reached}; there is nothing to compare it with{'' if study.failed_methods else ' yet'}."
    ahead = f"{reached}, the best of {len(rivals) + 1} methods and {lead(study.metric, rivals[0].behind)}"
    seeds = len(first.score.values)
    if seeds < LEAST_SEEDS:
        return f"{ahead}; {undecidable(seeds)}."
    if ties := [row.label for row in rivals if row.tied]:
        same = equal_words(study.metric, [row.behind for row in rivals if row.behind is not None])
        return f"{ahead}; with {plural(seeds, 'seed')} it cannot be told from {join_words(ties)}{same}."
    if doubt := doubts_of_lead(study, first.label, [row.label for row in rivals]):
        return f"{ahead}; but {doubt}, so no winner is named."
    return f"{ahead}: it is the best of them on this data."


def best_for_sure(study: Study, rows: Sequence[LeaderboardRow]) -> str | None:
    """The method that is better than every rival, without a doubt. rows: the leaderboard."""
    first = ahead_of_all(study, rows)
    rivals = [row.label for row in rows if row.label not in (first, *REFERENCES)]
    return None if first is None or doubts_of_lead(study, first, rivals) else first


def ahead_of_all(study: Study, rows: Sequence[LeaderboardRow]) -> str | None:
    """The method that is better than every rival, doubts or not. rows: the leaderboard."""
    rivals = [row for row in rows[1:] if row.label not in REFERENCES]
    if not rivals or rows[0].label in REFERENCES:
        return None
    if study.race is not None:
        return study.race.leader if study.race.ending == "winner" else None
    told = all(row.behind is not None and row.behind.sign for row in rivals)
    return rows[0].label if told else None


def equal_words(metric: Metric, found: Sequence[Contrast]) -> str:
    """`; equal to it within 1.0 points: fedper`, or nothing."""
    equal = [one for one in found if one.equal]
    return f"; {within(metric, equal[0])} it: {join_words([one.other for one in equal])}" if equal else ""


def within(metric: Metric, found: Contrast) -> str:
    """`equal within 1.0 points to`."""
    return f"equal within {metric.number(found.margin or 0.0)}{points(metric)} to"


def lead(metric: Metric, found: Contrast) -> str:
    """`1.2 points ahead of fedper (95 % interval ..., p = ...)`, or behind, over the seeds that both have."""
    size = metric.difference(abs(found.gain.mean)).lstrip("+") + points(metric)
    p = "" if found.p_adjusted is None else f", p {p_text(found.p_adjusted)}"
    side = "ahead of" if found.gain.mean >= 0 else "behind"
    return f"{size} {side} {found.other} ({span(found.gain, metric.difference)}{p})"


def comparison_notes(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """The lines under the answer: comparison with local training, failures, and the detectable difference."""
    if study.race is not None:
        lines = [*race_notes(study, study.race), *evidence_lines(study), *_failures(study, rows)]
        return [*lines, *_at_ends(study, rows), *tuning_doubts(study), *equal_points(study)]
    lines = [*_over_local(study, rows), *_failures(study, rows), *_at_ends(study, rows), *tuning_doubts(study)]
    lines += equal_points(study)
    rivals = [row for row in rows[1:] if row.behind is not None and row.label not in REFERENCES]
    if rivals and (found := rivals[0].behind) is not None and found.resolves is not None:
        lines.append(detectable_line(study.metric, found))
    return [*lines, *evidence_lines(study), *few_seeds(len(rows[0].score.values) if rows else 0)]


def detectable_line(metric: Metric, found: Contrast) -> str:
    """Which difference between the first two methods would be seen."""
    if not any(found.gain.values):
        return f"{found.method} and {found.other} have the same score in every seed."
    smallest = metric.difference(found.resolves or 0.0).lstrip("+") + points(metric)
    these = "these seeds" if found.gain.samples is None else "these seeds and test samples"
    return f"Between the first two, {these} can detect differences of {smallest} or more{left_open(found)}."


def left_open(found: Contrast) -> str:
    """How many seeds would decide what these leave open, or that none would."""
    if found.needs_samples:
        return "; more seeds cannot show the observed one, more test samples can"
    more = found.seeds_needed
    if found.sign or not more or more <= len(found.gain.values):
        return ""
    return f"; the observed one would need about {more} seeds to show with a probability of 80\u00a0%"


def _failures(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Methods without a score, and methods scored on some seeds only."""
    lines = [f"Failed, so not compared: {join_words(study.failed_methods)}."] if study.failed_methods else []
    lines += [f"{line}." for line in reasons(study.failures)]
    partly = [f"{row.label}{row.mark}" for row in rows if row.failed]
    return [*lines, f"Scored on the remaining seeds only: {join_words(partly)}."] if partly else lines


def _at_ends(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Methods whose best point is at the edge of the search range, or beside points that were not tried."""
    plan, known = study.plan, [row.label for row in rows if row.label not in REFERENCES]
    ends = [label for label in known if plan.ends.get(label)]
    inside = [label for label in known if plan.untried.get(label) and label not in ends]
    groups = {
        "Best candidate at the edge of the search range, so perhaps not optimal": ends,
        "Best candidate beside candidates that were not tried": inside,
    }
    return [f"{what}: {join_words(labels)}." for what, labels in groups.items() if labels]


def _over_local(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Which methods are better or worse than local training, equal to it, or undecided."""
    known = [row for row in rows if row.over_local is not None and row.label not in REFERENCES]
    better, worse = "better than local training", "worse than local training"
    groups: dict[str, list[str]] = {better: [], worse: []}
    doubtful: dict[str, list[str]] = {}
    for row in known:
        assert row.over_local is not None
        sign = row.over_local.sign
        if sign and (doubt := doubts(study, row.label, BASELINE, row.over_local.gain.mean)):
            doubtful.setdefault(doubt, []).append(row.label)
        else:
            open_word = f"{within(study.metric, row.over_local)} local training" if row.over_local.equal else UNDECIDED
            groups.setdefault([open_word, better, worse][sign], []).append(row.label)
    groups[UNDECIDED] = groups.pop(UNDECIDED, [])
    said = "; ".join(f"{name}: {join_words(labels)}" for name, labels in groups.items() if labels)
    lines = [f"{sentence(said)}." if said else ""]
    lines += [f"{join_words(labels)}: ahead or behind, but {doubt}." for doubt, labels in doubtful.items()]
    return [line for line in lines if line]
