"""The lines under an answer: methods against local training, doubts, failures, what is open, and what is promised."""

from collections.abc import Mapping, Sequence
from math import isfinite

from fedbench.config.words import plural
from fedbench.report.answer import span, within
from fedbench.report.doubts import with_doubt
from fedbench.report.evidence import evidence_lines
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.leaderboard_table import reasons
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.report.typeset import join_words, p_text, points, sentence
from fedbench.report.verdicts import LOCAL_WORDS, bound_ends, margin_text
from fedbench.results.contrasts import Contrast
from fedbench.results.plan import point_name
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import Interval
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import Bound, Verdict, is_clear
from fedbench.tasks import Metric

UNDECIDED = "undecided"
ENOUGH_SEEDS = 5
"""From this number on, reports omit the remark on intervals over few seeds."""
NO_SEEDS = "more seeds cannot decide this over the same test samples; more test samples can"


def notes(survey: SettingsStudy) -> list[str]:
    """The lines under the answer of a study or a run."""
    return settings_notes(survey) if survey.has_settings else study_notes(survey.first_study, survey.rows)


def study_notes(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """The lines under the answer of a study without settings. rows: the leaderboard, if methods are compared."""
    if study.plan.subject is None or study.sequential_test is not None:
        return comparison_notes(study, rows)
    return [*reference_lines(study), *evidence_lines(study)]


def reference_lines(study: Study) -> list[str]:
    """The lines under the answer: the subject compared with each other reference."""
    others = [method for method in study.metrics if method not in (study.method, BASELINE)]
    lines = []
    for other in others:
        gap = study.scores.difference(study.method, other, study.point)
        if gap is not None:
            difference = f"{study.metric.difference(gap.mean)}{points(study.metric)}"
            verdict = with_doubt(study, Verdict(study.method, other, gap))
            but = f"; but {verdict.doubt}" if verdict.doubt else ""
            undecided = ", undecided" if gap.low is not None and not verdict.sign else but
            lines.append(f"Against {other}: {difference} ({span(gap, study.metric.difference)}{undecided}).")
    return [
        *lines,
        *tuning_doubts(study),
        *equal_points(study),
        *few_seeds(len(study.last_rows(study.method)) if study.method in study.metrics else 0),
    ]


def tuning_doubts(study: Study) -> list[str]:
    """Why the chosen points may not be the best ones, for all methods."""
    return [f"{sentence(line)}." for line in study.plan.tuning_doubts]


def equal_points(study: Study) -> list[str]:
    """Which chosen points were the first of several with the same score on validation."""
    plan = study.plan
    ties = {label: plan.as_good(label) for label in plan.labels()}
    more = lambda names: " and more" if len(names) > 2 else ""  # noqa: E731
    choices = [
        f"{label} ({point_name(plan.choices[label])}; also {', '.join(names[:2])}{more(names)})"
        for label, names in ties.items()
        if names
    ]
    return (
        [f"Chosen as the first of candidates with equal validation scores: {join_words(choices)}."] if choices else []
    )


def few_seeds(count: int) -> list[str]:
    """The coverage of intervals over few seeds in a simulation."""
    if not 2 <= count < ENOUGH_SEEDS:
        return []
    return [
        "In a simulation with three seeds, 95\u00a0% intervals over seeds contained the true value in 95\u00a0% of "
        "cases, but only in 89\u00a0% if one seed in ten is an outlier."
    ]


def comparison_notes(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """The lines under the answer: comparison with local training, failures, and the detectable difference."""
    if study.sequential_test is not None:
        lines = [*sequential_notes(study, study.sequential_test), *evidence_lines(study), *_failures(study, rows)]
        return [*lines, *_at_ends(study, rows), *tuning_doubts(study), *equal_points(study)]
    lines = [*_over_local(study, rows), *_failures(study, rows), *_at_ends(study, rows), *tuning_doubts(study)]
    lines += equal_points(study)
    rivals = [row for row in rows[1:] if row.behind is not None and not row.is_reference]
    if rivals and isinstance(contrast := rivals[0].behind, Contrast) and contrast.resolves:
        lines.append(detectable_line(study.metric, contrast))
    return [*lines, *evidence_lines(study), *few_seeds(len(rows[0].score.values) if rows else 0)]


def detectable_line(metric: Metric, contrast: Contrast) -> str:
    """Which differences between the first two methods would not be seen."""
    if not any(contrast.interval.values):
        return f"{contrast.method} and {contrast.against} have the same score in every seed."
    smallest = metric.difference(contrast.resolves or 0.0).lstrip("+") + points(metric)
    these = "these seeds" if contrast.interval.samples is None else "these seeds and test samples"
    return f"Between the first two, {these} cannot tell differences below {smallest} from 0{left_open(contrast)}."


def left_open(contrast: Contrast) -> str:
    """How many seeds would decide what these leave open, or that none would."""
    if contrast.needs_samples:
        return "; more seeds cannot show the observed one, more test samples can"
    more = contrast.seeds_needed
    if contrast.sign or not more or more <= contrast.interval.seeds:
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
    plan, known = study.plan, [row.label for row in rows if not row.is_reference]
    ends = [label for label in known if plan.ends.get(label)]
    inside = [label for label in known if plan.untried.get(label) and label not in ends]
    groups = {
        "Best candidate at the edge of the search range, so perhaps not optimal": ends,
        "Best candidate beside candidates that were not tried": inside,
    }
    return [f"{what}: {join_words(labels)}." for what, labels in groups.items() if labels]


def _over_local(study: Study, rows: Sequence[LeaderboardRow]) -> list[str]:
    """Which methods are better or worse than local training, equal to it, or undecided."""
    known = [row for row in rows if row.over_local is not None and not row.is_reference]
    better, worse = LOCAL_WORDS["better"], LOCAL_WORDS["worse"]
    groups: dict[str, list[str]] = {better: [], worse: []}
    doubtful: dict[str, list[str]] = {}
    for row in known:
        assert row.over_local is not None
        relation = row.over_local.stated
        if relation == "withheld":
            doubtful.setdefault(row.over_local.doubt, []).append(row.label)
        else:
            same = f"{within(study.metric, row.over_local)} local training"
            groups.setdefault({"better": better, "worse": worse, "equal": same}.get(relation, UNDECIDED), []).append(
                row.label
            )
    groups[UNDECIDED] = groups.pop(UNDECIDED, [])
    text = "; ".join(f"{name}: {join_words(labels)}" for name, labels in groups.items() if labels)
    lines = [f"{sentence(text)}." if text else ""]
    lines += [f"{join_words(labels)}: ahead or behind, but {doubt}." for doubt, labels in doubtful.items()]
    return [line for line in lines if line]


def sequential_notes(study: Study, test: SequentialTest) -> list[str]:
    """The lines of a sequential test: groups with their intervals, what is open and why, and the guarantee."""
    metric, lines = study.metric, list[str]()

    def shown(bounds: Mapping[str, Interval | Bound]) -> str:
        return join_words([f"{label} ({bound_ends(metric, bound)})" for label, bound in bounds.items()])

    if test.behind and test.ending != "winner":
        lines.append(f"Difference from {test.leader}: {shown(test.behind)}.")
    verdicts = [with_doubt(study, verdict) for verdict in test.over_local.values()]
    for relation, form in LOCAL_WORDS.items():
        words, group = form.format(margin=margin_text(study)), [one for one in verdicts if one.relation == relation]
        if fine := {one.method: one.interval for one in group if not one.doubt}:
            lines.append(f"{sentence(words)}: {shown(fine)}.")
        lines += [f"{one.method}: {words}, but {one.doubt}." for one in group if one.doubt]
    if test.look and (left := {label: state for label, state in test.undecided.items() if label not in test.given_up}):
        lines.append(f"Undecided against local training: {shown(left)}.")
    lines += _given_up(study, test)
    for (question, method), verdict in test.withheld.items():
        what = f"{method}, {verdict}{' than local training' if question == 'local' else ''}"
        lines.append(f"Withheld, because it does not hold without an outlying seed: {what}.")
    if not test.is_over and test.look:
        lines.append(f"Stopped before it was decided; the same command continues with {next_looks(test)}.")
    return [*lines, guarantee(study)] if test.look else lines


def _given_up(study: Study, test: SequentialTest) -> list[str]:
    """Questions that are given up and why, and those that no number of seeds decides."""
    most, lines = int((study.plan.stopping_rule or {})["most"]), []
    few = f"because {most} seeds would decide it with a probability below 20\u00a0%"
    for why, by_samples in ((few, False), (f"because {NO_SEEDS}", True)):
        methods = [method for method in test.given_up if (("local", method) in test.needs_samples) == by_samples]
        if methods:
            shown = [f"{method} ({bound_ends(study.metric, test.undecided[method])})" for method in methods]
            lines.append(f"Given up against local training, {why}: {join_words(shown)}.")
    if test.ending == "open" and any(question == "best" for question, _ in test.needs_samples):
        lines.append(f"Who is best stays open, because {NO_SEEDS}.")
    return lines


def guarantee(study: Study) -> str:
    """The promise of all statements of a study together, and its premises."""
    return (
        "All these statements together, over all looks, are false with a probability of at most 5\u00a0%, "
        f"{premises(study)}. The intervals are simultaneous. A study that stops early tends to exaggerate differences."
    )


def premises(study: Study) -> str:
    """The premises of an error probability."""
    chosen = "the chosen candidates and " if any(study.plan.points(label) for label in study.plan.labels()) else ""
    return f"given {chosen}the clients, and if differences over seeds are normal"


def next_looks(test: SequentialTest) -> str:
    """The next look in words."""
    return f"{max(test.needs.values())} seeds of {plural(len(test.needs), 'method')}"


def settings_notes(survey: SettingsStudy) -> list[str]:
    """The lines under the answer: the tests, and their limits with few blocks."""
    if survey.is_sequential:
        return sequential_settings_notes(survey)
    ranking = survey.ranking
    lines = []
    if ranking.friedman is not None and isfinite(ranking.friedman):
        lines.append(
            f"Friedman's test over {ranking.blocks} blocks (a block is a setting and a seed): "
            f"p {p_text(ranking.friedman)}; pairs by Wilcoxon's signed-rank test with Holm's correction."
        )
    if not is_clear(ranking.finest) and len(ranking.ranks) > 1:
        lines.append(
            f"With so few blocks no two of {len(ranking.ranks)} methods can be told apart; use more seeds or settings."
        )
    if ranking.blocks:
        lines.append("This holds for these settings only.")
    return lines


def sequential_settings_notes(survey: SettingsStudy) -> list[str]:
    """The lines under the answer: who is better than local training where, what is not over, and the guarantee."""
    margin, lines = margin_text(survey.first_study), list[str]()
    verdicts = [
        (name, with_doubt(study, verdict))
        for name, study, test in survey.sequential_tests
        for verdict in test.over_local.values()
    ]
    for relation, form in LOCAL_WORDS.items():
        fine: dict[str, list[str]] = {}
        doubtful: dict[tuple[str, str], list[str]] = {}
        words = form.format(margin=margin)
        for name, one in verdicts:
            if one.relation == relation and one.doubt:
                doubtful.setdefault((one.method, one.doubt), []).append(name)
            elif one.relation == relation:
                fine.setdefault(one.method, []).append(name)
        if fine:
            lines.append(f"{sentence(words)}: {_where(survey, fine)}.")
        lines += [f"{m} in {join_words(names)}: {words}, but {doubt}." for (m, doubt), names in doubtful.items()]
    for name, _, test in survey.sequential_tests:
        if test.needs and test.look:
            lines.append(
                f"Stopped in {name} before it was decided; the same command continues with {next_looks(test)}."
            )
    return (
        [*lines, guarantee_of_settings(survey)] if any(test.look for _, _, test in survey.sequential_tests) else lines
    )


def _where(survey: SettingsStudy, settings: Mapping[str, Sequence[str]]) -> str:
    """Methods with their settings, those in the most settings first; methods in the same settings together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for method in sorted(settings, key=lambda method: (-len(settings[method]), survey.ordered.index(method))):
        together.setdefault(tuple(settings[method]), []).append(method)
    words = {names: _settings_in_words(names, len(survey.sequential_tests)) for names in together}
    return "; ".join(f"{join_words(them)} in {words[names]}" for names, them in together.items())


def _settings_in_words(names: Sequence[str], settings: int) -> str:
    return "every setting" if len(names) == settings > 1 else join_words(list(names))


def guarantee_of_settings(survey: SettingsStudy) -> str:
    """The promise of the verdicts of all settings."""
    settings = len(survey.sequential_tests)
    several = f" and of all {settings} together with at most {min(100, 5 * settings)}\u00a0%" if settings > 1 else ""
    return (
        f"95\u00a0% for each setting: the statements of one setting, over all its looks, are false with a probability "
        f"of at most 5\u00a0%{several}, {premises(survey.first_study)}. The intervals of a setting are simultaneous. A "
        "study that stops early tends to exaggerate differences."
    )
