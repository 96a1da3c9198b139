"""Who is best, in one sentence: of a run, a grid, a comparison, one that adds seeds, and of each over settings.

The sentence names a winner only if it beats every rival and there is no doubt.
"""

from collections.abc import Sequence
from typing import Any

from fedbench.config.words import plural
from fedbench.report.doubts import doubt_of_winner, doubts_of_lead, gaps_of, settings, with_doubt
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import join_words, p_text, points, sentence
from fedbench.report.verdicts import margin_text
from fedbench.results.contrasts import Contrast
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import LEAST_SEEDS, Interval
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Verdict, is_by_chance
from fedbench.tasks import Metric


def answer(survey: SettingsStudy) -> str:
    """The answer of a study or a run."""
    return settings_answer(survey) if survey.has_settings else study_answer(survey.first_study, survey.rows)


def study_answer(study: Study, rows: Sequence[LeaderboardRow]) -> str:
    """The answer of a study without settings. rows: the leaderboard, if methods are compared."""
    if study.sequential_test is not None:
        return sequential_answer(study, study.sequential_test)
    if study.plan.subject is None:
        return comparison_answer(study, rows)
    return compared_answer(study) if study.is_comparison else run_answer(study)


def run_answer(study: Study) -> str:
    """The final score at both points, with intervals."""
    if study.method in study.failed_methods:
        return f"{study.method} failed."
    if study.method not in study.metrics:
        return f"{study.method} has not been evaluated yet."
    scores = study.summaries[study.method]["points"]
    texts = [
        f"{study.metric.with_unit(score['mean'])} {POINT_NAMES[point]} ({span(score, study.metric.with_unit)})"
        for point in ("after_agg", "after_fit")
        if (score := scores.get(point, {}).get("last", {}).get(study.test))
    ]
    if not texts:
        return f"{study.method} has not been evaluated on personal models yet."
    of = "" if study.metric.share else f"a {study.metric.label} of "
    gap = f"; {gaps_of(study, study.method)}" if study.failed_seeds(study.method) else ""
    return f"{so_far(study)}{study.method} reached {of}{' and '.join(texts)}{gap}."


def so_far(study: Study) -> str:
    """`So far, after round 12 of 50, ` while rounds are missing."""
    reached = reached_round(study)
    return f"So far, after {reached}, " if reached else ""


def reached_round(study: Study) -> str:
    """`round 12 of 50` while rounds of the method are missing."""
    if study.summaries[study.method]["complete"]:
        return ""
    reached, total = int(study.metrics[study.method]["round"].max()), study.config.get("rounds")
    return f"round {reached}{f' of {total}' if total else ''}"


def compared_answer(study: Study) -> str:
    """Names the winning point and its gain over local, and says whether collaboration helped."""
    plan, candidates = study.plan, study.plan.points()
    chosen = plan.choices.get(study.method)
    if candidates and chosen is None:
        failed = sum(entry.status == "failed" for entry in candidates)
        return f"No candidate finished: {failed} of {len(candidates)} failed, so there is no answer."
    winner = f"{study.method} with {settings(chosen)}" if chosen else study.method
    if study.method not in study.metrics or study.last_rows(study.method).empty:
        value = next((entry.scores.get("val") for entry in candidates if entry.values == chosen), None)
        score = study.metric.with_unit(value) if value is not None else f"{study.metric.label} unknown"
        lack = "failed" if study.method in study.failed_methods else "are not finished yet"
        ties = len(plan.as_good(study.method))
        tied = f"is the first of {ties + 1} candidates with the same score on validation"
        led = tied if ties else "won on validation"
        return f"{winner} {led} ({score}); its final runs {lack}."
    reached = study.metric.with_unit(study.last_rows(study.method)[study.test].mean())
    ties = len(plan.as_good(study.method))
    first = f"is the first of {ties + 1} candidates with the same validation score and reached"
    won = (
        first if ties else f"won the {'grid' if plan.search == 'grid' else 'search'} with" if candidates else "reached"
    )
    begin = f"{so_far(study)}{winner} {won} {reached} {POINT_NAMES[study.point]}"
    if study.method == BASELINE:
        return f"{begin}."
    gain = study.scores.difference(study.method, BASELINE, study.point)
    if gain is None:
        return f"{begin}; without a run of local the benefit of collaboration is unknown."
    return f"{begin}, {gain_text(study.metric, gain, with_doubt(study, Verdict(study.method, BASELINE, gain)))}"


def gain_text(metric: Metric, gain: Interval, verdict: Verdict) -> str:
    """Whether a paired gain over local shows that collaboration helped, unless there is a doubt."""
    better = {True: "above", False: "below"} if metric.higher else {True: "better than", False: "worse than"}
    size_of = metric.difference(abs(gain.mean)).lstrip("+") + points(metric)
    text = f"{size_of} {better[gain.mean >= 0]} local training"
    between = f"({span(gain, metric.difference)})"
    if gain.low is None:
        return f"{text} (one seed, so no interval): it is undecided whether collaboration helped."
    if gain.seeds < LEAST_SEEDS:
        return f"{text} {between}: {undecidable(gain.seeds)} whether collaboration helped."
    if verdict.doubt:
        return f"{text} {between}; but {verdict.doubt}, so it is undecided whether collaboration helped."
    if verdict.sign:
        return f"{text} {between}: collaboration {'helped' if verdict.sign > 0 else 'did not help'}."
    count = plural(gain.seeds, "seed")
    why = "all seeds show the same" if is_by_chance(gain) else "the interval includes 0"
    return f"{text} {between}; {why}, so with {count} it is undecided whether collaboration helped."


def undecidable(seeds: int) -> str:
    """Why one or two seeds give no verdict."""
    return "one seed is not enough to decide" if seeds == 1 else "two seeds cannot decide"


def comparison_answer(study: Study, rows: Sequence[LeaderboardRow]) -> str:
    """The answer in one sentence; names a winner only if it beats every rival and there is no doubt."""
    rivals = [row for row in rows[1:] if not row.is_reference]
    if not rows:
        return "Every method failed." if study.failed_methods else "No method has been evaluated yet."
    first = rows[0]
    reached = f"{first.label} reached {study.metric.with_unit(first.score.mean)} {POINT_NAMES[study.point]}"
    first_rival = rivals[0].behind if rivals else None
    if not isinstance(first_rival, Contrast):
        return f"{reached}; there is nothing to compare it with{'' if study.failed_methods else ' yet'}."
    if isinstance(lag := next((row.behind for row in rivals if is_behind(row)), None), Contrast):
        mean = f"{reached}, the best mean of {len(rivals) + 1} methods"
        return f"{mean}, but over the seeds of both it is {lead(study.metric, lag)}, so no winner is named."
    ahead = f"{reached}, the best of {len(rivals) + 1} methods and {lead(study.metric, first_rival)}"
    seeds = len(first.score.values)
    if seeds < LEAST_SEEDS:
        return f"{ahead}; {undecidable(seeds)}."
    if ties := [row.label for row in rivals if row.tied]:
        same = equal_words(study.metric, [row.behind for row in rivals if row.behind is not None])
        return f"{ahead}; with {plural(seeds, 'seed')} it cannot be told from {join_words(ties)}{same}."
    if doubt := doubts_of_lead(study, first.label, [row.label for row in rivals]):
        return f"{ahead}; but {doubt}, so no winner is named."
    return f"{ahead}: it is the best of them on this data."


def is_behind(row: LeaderboardRow) -> bool:
    """Whether the first method is behind this one over the seeds that both have."""
    return row.behind is not None and (row.behind.interval.mean or 0) < 0


def best_for_sure(study: Study, rows: Sequence[LeaderboardRow]) -> str | None:
    """The method that is better than every rival, without a doubt. rows: the leaderboard."""
    first = ahead_of_all(study, rows)
    rivals = [row.label for row in rows if row.label != first and not row.is_reference]
    return None if first is None or doubts_of_lead(study, first, rivals) else first


def ahead_of_all(study: Study, rows: Sequence[LeaderboardRow]) -> str | None:
    """The method that is better than every rival, doubts or not. rows: the leaderboard."""
    rivals = [row for row in rows[1:] if not row.is_reference]
    if not rivals or rows[0].is_reference:
        return None
    if study.sequential_test is not None:
        return study.sequential_test.leader if study.sequential_test.ending == "winner" else None
    is_ahead = all(row.behind is not None and row.behind.sign > 0 for row in rivals)
    return rows[0].label if is_ahead else None


def equal_words(metric: Metric, verdicts: Sequence[Verdict]) -> str:
    """`; equal to it within 1.0 points: fedper`, or nothing."""
    equal = [one for one in verdicts if one.relation == "equal"]
    return f"; {within(metric, equal[0])} it: {join_words([one.against for one in equal])}" if equal else ""


def within(metric: Metric, verdict: Verdict) -> str:
    """`equal within 1.0 points to`."""
    return f"equal within {metric.number(verdict.margin or 0.0)}{points(metric)} to"


def lead(metric: Metric, contrast: Contrast) -> str:
    """`1.2 points ahead of fedper (95 % interval ..., p = ...)`, or behind, over the seeds that both have."""
    size = metric.difference(abs(contrast.interval.mean)).lstrip("+") + points(metric)
    p = "" if contrast.p_adjusted is None else f", p {p_text(contrast.p_adjusted)}"
    side = "ahead of" if contrast.interval.mean >= 0 else "behind"
    return f"{size} {side} {contrast.against} ({span(contrast.interval, metric.difference)}{p})"


def sequential_answer(study: Study, test: SequentialTest) -> str:
    """The answer in one sentence."""
    if test.leader is None:
        return "Every method failed." if study.failed_methods else "No method has been evaluated yet."
    leader, rest, margin = test.leader, test.candidates[1:], margin_text(study)
    if not test.look and not test.needs:
        return f"Nothing can be decided: there is no run to compare {leader} with."
    if not test.look:
        return f"Not decided yet: the first look is at {max(test.needs.values())} seeds."
    reached = f"{leader} reached {study.metric.with_unit(study.final_score(leader))} {POINT_NAMES[study.point]}"
    seeds = plural(test.ended_at or test.seeds[leader], "seed")
    if test.ending is None:
        return f"Not decided after {seeds}: {reached}, and {join_words(rest)} may still be the best."
    doubt = doubt_of_winner(study, test)
    if test.ending == "winner":
        if not test.out and test.candidates == [leader]:
            return f"{reached}; there is nothing to compare it with{f', because {doubt}' if doubt else ''}."
        if doubt:
            return f"{reached} and beats all others, decided after {seeds}; but {doubt}, so no winner is named."
        return f"{reached}: it is the best, decided after {seeds}."
    but = f"; but {doubt}" if doubt else ""
    if test.ending == "tie":
        return f"{reached}; equal to it within {margin}: {join_words(rest)}, decided after {seeds}{but}."
    if test.ending == "within":
        return f"{reached} and is best or within {margin} of the best; {join_words(rest)} may be better ({seeds}){but}."
    least = (study.plan.stopping_rule or {})["margin"] / study.metric.factor
    far = [label for label in rest if label not in test.behind or test.behind[label].high >= least]
    return f"Undecided: {reached}, but {join_words(far or rest)} may be better by {margin} or more ({seeds})."


def settings_answer(survey: SettingsStudy) -> str:
    """The answer of a study over settings; names a winner only if it can be told from all others."""
    if survey.is_sequential:
        return sequential_settings_answer(survey)
    ranking = survey.ranking
    if len(ranking.ranks) < 2 or not ranking.blocks:
        return "There is nothing to compare yet."
    first, second, *others = ranking.ranks
    where = plural(len(survey.settings), "setting")
    if len({round(rank, 6) for rank in ranking.ranks.values()}) == 1:
        return f"{join_words([*ranking.ranks])} have the same mean rank over {where}."
    best = f"{first} has the best mean rank over {where}: {ranking.ranks[first]:.2f} of {len(ranking.ranks)}"
    if ties := ranking.not_told_from(first):
        return f"{best}; it cannot be told from {join_words(ties)}."
    doubts = {name: doubts_of_lead(study, first, [second, *others]) for name, study in survey.studies.items()}
    if doubt := next(filter(None, doubts.values()), ""):
        names = join_words([name for name, known in doubts.items() if known == doubt])
        return f"{best}; but in {names} {doubt}, so no winner is named."
    return f"{best}, ahead of {second} ({ranking.ranks[second]:.2f}, p {p_text(ranking.pairs[first, second])})."


def sequential_settings_answer(survey: SettingsStudy) -> str:
    """The answer of every setting in one sentence; settings with the same answer are named together."""
    by_answer: dict[str, list[str]] = {}
    for name, study, test in survey.sequential_tests:
        by_answer.setdefault(_setting_answer(study, test), []).append(name)
    return f"{sentence('; '.join(words.format(join_words(names)) for words, names in by_answer.items()))}."


def _setting_answer(study: Study, test: SequentialTest) -> str:
    """The answer of a setting, with a place for its name."""
    leader, rest, margin = test.leader or "", join_words(test.candidates[1:]), margin_text(study)
    if not test.look:
        return "in {} nothing is decided yet" if test.needs else "in {} nothing can be decided"
    if test.ending == "winner":
        doubt = doubt_of_winner(study, test)
        return f"in {{}} {leader} beats all others, but {doubt}" if doubt else f"in {{}} {leader} is the best"
    if test.ending == "tie":
        return f"in {{}} {leader} leads, equal to it within {margin}: {rest}"
    if test.ending == "within":
        return f"in {{}} {leader} is best or within {margin} of the best, and {rest} may be better"
    known = f"{join_words(test.candidates)} may be the best"
    return f"in {{}} it is undecided: {known}" if test.is_over else f"in {{}} it is not decided yet: {known}"


def span(interval: Interval | dict[str, Any], form: Any) -> str:
    """`95 % interval a to b`, or why there is none."""
    low, high = (interval.low, interval.high) if isinstance(interval, Interval) else (interval["low"], interval["high"])
    return f"95\u00a0% interval {form(low)} to {form(high)}" if low is not None else "one seed, so no interval"
