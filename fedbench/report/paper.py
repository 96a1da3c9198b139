"""Tables for papers: scores, chosen hyperparameters, and ablations, as LaTeX, Markdown or CSV.

A table has few columns, and its note says what it means. It makes no claim that the study does not: a score is in bold
only if the study names a winner, and marks stand for differences that are significant after the correction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.report.answer import ahead_of_all, answer, best_for_sure, reached_round
from fedbench.report.doubts import with_doubt
from fedbench.report.evidence import evidence_lines, kind_of
from fedbench.report.in_python import require_known
from fedbench.report.leaderboard import OTHER_POINT, LeaderboardRow, leaderboard
from fedbench.report.leaderboard_table import leaderboard_frame
from fedbench.report.scores import worst_note
from fedbench.report.settings_page import matrix_frame
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.table import Table
from fedbench.report.typeset import Cell, ShownMethods, join_words, sentence, with_half
from fedbench.report.verdicts import BEST, BETTER, WORSE, bound_text, mark_of
from fedbench.results.contrasts import Contrast, family
from fedbench.results.estimators import estimator_remark
from fedbench.results.plan import is_number, key_name, text_of
from fedbench.results.quantities import seed_range
from fedbench.results.settings_file import Setting, is_matrix
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE, LAST, REFERENCES, FinalScores
from fedbench.results.unscored import worst_label
from fedbench.results.verdict import ALPHA, Verdict

MOST_VALUES = 6
"""Maximum number of tried values of a key that a table lists."""
SHARED = ("partition", "data", "public", "participation")
"""Sections that decide which images a client has: settings that differ in them cannot be compared client by client."""


@dataclass(frozen=True)
class Choice(ShownMethods):
    """What a table shows. reference: the method that marks compare with, by default local."""

    reference: str | None = None

    def of(self, labels: Sequence[str]) -> list[str]:
        """The shown ones of these labels. Raises ConfigError for a method that is not among them."""
        require_known("methods", self.methods, labels)
        require_known("names", [*self.names], labels)
        require_known("reference", [self.reference] if self.reference else [], labels)
        return [*(self.methods or labels)]

    def name_column(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(method=frame["method"].map(self.name))


def paper_table(folder: Path, what: str, choice: Choice) -> Table:
    """A table of a study. Raises ConfigError if it has none of this name, or no results."""
    makers: dict[str, Callable[[Any, Choice], Table]]
    found: Study | SettingsStudy
    if is_matrix(folder):
        found = SettingsStudy.load(folder)
        makers = {"scores": survey_scores, "hyperparameters": survey_hyperparameters, "ablation": ablation}
    else:
        found = Study.load(folder)
        makers = {"scores": study_scores, "hyperparameters": study_hyperparameters}
    if what == "ablation" and what not in makers:
        raise ConfigError(f"{folder}: no ablation here; it is a table of a comparison with --over, one row per value")
    if what not in makers:
        raise ConfigError(f"table = {what}: must be one of {', '.join(makers)}")
    if not (found.labels if isinstance(found, SettingsStudy) else found.ordered):
        raise ConfigError(f"{folder}: nothing was evaluated yet")
    return makers[what](found, choice)


@dataclass(frozen=True)
class Marks:
    """What a study decides for a table. rows: its leaderboard; reference: the method that marks compare with.

    Raises ConfigError for a race with another reference than local training.
    """

    study: Study
    rows: Mapping[str, LeaderboardRow]
    reference: str

    def __post_init__(self) -> None:
        if self.study.race is not None and self.reference != BASELINE:
            told = f"a comparison with --until-decided tests against {BASELINE} only"
            raise ConfigError(f"reference = {self.reference}: {told}")

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Of every other method against the reference."""
        if self.reference == BASELINE:
            return {label: row.over_local for label, row in self.rows.items() if row.over_local is not None}
        others = [(label, self.reference) for label in self.rows if label != self.reference]
        found = family(self.study.scores, others, self.study.point)
        return {verdict.method: with_doubt(self.study, verdict) for verdict in found}

    @cached_property
    def doubts(self) -> dict[str, str]:
        """Why it is not certain that methods are better or worse than the reference, although tests say so."""
        known = {label: found.doubt for label, found in self.verdicts.items() if found.sign}
        return {label: doubt for label, doubt in known.items() if doubt and label not in REFERENCES}

    @cached_property
    def marks(self) -> dict[str, str]:
        """The marks of the methods that are better or worse than the reference, in brackets where there is a doubt."""
        found = {label: mark_of(verdict) for label, verdict in self.verdicts.items() if label not in REFERENCES}
        return found | ({self.ahead: found.get(self.ahead, "") + BEST} if self.ahead else {})

    @cached_property
    def best(self) -> str | None:
        """The method that the study names as the best of several."""
        return best_for_sure(self.study, [*self.rows.values()])

    @cached_property
    def ahead(self) -> str | None:
        """The method that is better than every other, if there is a doubt about it."""
        return None if self.best else ahead_of_all(self.study, [*self.rows.values()])

    def cell(self, label: str, seeds: str = "") -> Cell:
        """The score of a method. seeds: a remark that it lacks some."""
        row, metric = self.rows[label], self.study.metric
        text = with_half(row.score, metric.number) + seeds
        return Cell(text, place=int(label == self.best), mark=self.marks.get(label, ""))

    def how(self) -> str:
        """By which tests methods are compared; empty if there are too few seeds for one."""
        if self.study.race is not None:
            return "sequential tests of paired differences that hold together with 95 %"
        tested = [found for found in self.verdicts.values() if isinstance(found, Contrast) and found.p is not None]
        if not tested:
            return ""
        count = max(found.comparisons for found in tested)
        corrected = f" after correction for {count} comparisons" if count > 1 else ""
        return f"paired t test {kind_of([found.interval for found in tested])}, p < {ALPHA:.2g}{corrected}"


def study_scores(study: Study, choice: Choice) -> Table:
    """Scores at both evaluation points, of the worst clients, and the difference to the reference."""
    rows, metric = {row.label: row for row in leaderboard(study)}, study.metric
    shown, marked = choice.of([*rows]), Marks(study, rows, choice.reference or BASELINE)
    over = f"over {choice.name(choice.reference or BASELINE)}{', points' if metric.share else ''}"
    is_race = study.race is not None
    worst = worst_label([count for label in shown for count in rows[label].scored])
    heads = ["method", metric.title, "sd", POINT_NAMES[OTHER_POINT[study.point]], worst, "client sd", over]
    lines = []
    for label in shown:
        row, number, gain = rows[label], metric.number, marked.verdicts.get(label)
        spread = "" if row.spread is None else number(row.spread)
        difference = "" if gain is None else bound_text(metric, gain.interval)
        if isinstance(gain, Contrast):
            difference = with_half(gain.interval, metric.difference, number)
        sd = number(row.score.sd) if is_race and row.score.sd is not None else ""
        beside = ["" if found is None else with_half(found, number) for found in (row.other, row.worst)]
        rest = [sd, *beside, spread, difference]
        lines.append([Cell(choice.name(label) + row.mark), marked.cell(label), *map(Cell, rest)])
    doubted = [label for label in shown if label in marked.doubts]
    notes = [
        mean_note([*rows.values()]),
        marks_note(choice, marked.how(), [marked.marks.get(label, "") for label in shown]),
        *(f"In brackets, because there is a doubt: {choice.name(m)} ({marked.doubts[m]})" for m in doubted),
        bold_note(marked, choice),
        "sd: over seeds; differences: simultaneous intervals at the seeds that decided them" if is_race else "",
        f"{sentence(worst_note(worst))}, its interval over seeds alone" if any(rows[m].worst for m in shown) else "",
        "Client sd: standard deviation over a seed's clients" if any(rows[m].spread is not None for m in shown) else "",
        pooled_note(choice, shown),
        *evidence_lines(study),
        sentence(estimator_remark(metric, [study.estimators[label] for label in shown])),
        *(f"{choice.name(label)} failed: {why}" for label, why in study.failures.items()),
    ]
    frame = choice.name_column(leaderboard_frame(study, [rows[label] for label in shown]))
    return Table(heads, lines, 1, caption_of(study), notes, "scores", frame)


def caption_of(study: Study) -> str:
    unfinished = [label for label in study.ordered if not study.summaries[label]["complete"]]
    when = "last round"
    if unfinished and study.plan.kind == "run":
        when = f"so far, after {reached_round(study)}"
    elif unfinished:
        when = f"last round so far (the runs of {join_words(unfinished)} are not complete)"
    return f"Test {study.metric.label} {POINT_NAMES[study.point]}{' in %' if study.metric.share else ''}, {when}."


def mean_note(rows: Sequence[LeaderboardRow]) -> str:
    counts = sorted({len(row.score.values) for row in rows})
    seeds = plural(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    over = kind_of([row.score for row in rows])
    alone = ", each by itself" if any(row.race is not None for row in rows) else ""
    half = f" ± half of the 95 % interval {over} (Student t{alone})" if counts[-1] > 1 else ""
    return f"Mean over clients and {seeds}{half}"


def marks_note(choice: Choice, how: str, marks: Sequence[str]) -> str:
    """What the marks in a table mean, or that there are none."""
    known = "".join(marks)
    said = " and ".join([f"{BETTER} better"] * (BETTER in known) + [f"{WORSE} worse"] * (WORSE in known))
    reference = choice.name(choice.reference or BASELINE)
    return how and f"{said or 'No method is significantly better or worse'} than {reference}: {how}"


def bold_note(marked: Marks, choice: Choice) -> str:
    """What bold means, or why nothing is bold."""
    rows = [*marked.rows.values()]
    if len([row for row in rows if row.label not in REFERENCES]) < 2 or marked.study.plan.subject is not None:
        return ""
    if marked.ahead is not None:
        said = choice.rename(answer(marked.study, rows))
        return f"{BEST} better than every other method, but in doubt: {said}"
    if marked.best is None:
        return f"Nothing is in bold: {choice.rename(answer(marked.study, rows))}"
    hidden = "" if marked.best in choice.of([*marked.rows]) else f"; {choice.name(marked.best)}, the best, is not shown"
    return f"Bold: better than every other method by the same tests{hidden}"


def pooled_note(choice: Choice, shown: Sequence[str]) -> str:
    pooled = [choice.name(label) for label in shown if label in REFERENCES]
    return f"{join_words(pooled)} trains on the pooled data of all clients and does not compete" if pooled else ""


def survey_scores(survey: SettingsStudy, choice: Choice) -> Table:
    """Methods by setting, with their mean ranks."""
    shown = choice.of(survey.ordered)
    marked = {
        setting.name: Marks(survey.studies[setting.name], survey.boards[setting.name], choice.reference or BASELINE)
        for setting in survey.settings
    }
    ranks = {} if survey.is_race else survey.ranking.ranks
    lines = [
        [
            Cell(choice.name(label)),
            *(own.cell(label, own.rows[label].mark) for own in marked.values()),
            Cell(f"{ranks[label]:.2f}" if label in ranks else ""),
        ]
        for label in shown
    ]
    marks = [own.marks.get(label, "") for own in marked.values() for label in shown]
    bold = "better than every other method of the setting by the same tests"
    any_best = any(own.best for own in marked.values())
    in_doubt = any(own.doubts for own in marked.values())
    ahead = any(own.ahead for own in marked.values())
    notes = [
        mean_note([row for own in marked.values() for row in own.rows.values()]),
        marks_note(choice, how_settings_are_tested(marked), marks),
        "In brackets: there is a doubt, which the setting's page names" if in_doubt else "",
        f"{BEST} {bold}, but there is a doubt, which the setting's page names" if ahead else "",
        f"Bold: {bold}" if any_best else f"Nothing is in bold, because no method is {bold}{' without a doubt' * ahead}",
        "Rank: mean over settings and seeds, 1 is the best" if ranks else "",
        pooled_note(choice, shown),
    ]
    heads = ["method", *(shown_name(setting) for setting in survey.settings), "rank"]
    numbers = survey_numbers(survey, choice, shown)
    return Table(heads, lines, 1, caption_of(survey.first_study), notes, "scores", numbers)


def how_settings_are_tested(marked: Mapping[str, Marks]) -> str:
    """By which tests methods are compared in each setting: one text, or one per setting where they differ."""
    names: dict[str, list[str]] = {}
    for name, own in marked.items():
        names.setdefault(own.how(), []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"in {join_words(own)} {how or 'too few seeds for a test'}" for how, own in names.items())


def survey_numbers(survey: SettingsStudy, choice: Choice, shown: Sequence[str]) -> pd.DataFrame:
    frame = matrix_frame(survey)
    return choice.name_column(frame[frame["method"].isin(shown)])


def shown_name(setting: Setting) -> str:
    """`alpha=0.1,participation=1` -> `alpha = 0.1, participation = 1`."""
    return setting.name.replace("=", " = ").replace(",", ", ")


def study_hyperparameters(study: Study, choice: Choice) -> Table:
    """Every method's tuned keys with the values that were tried and the chosen one, and its other numbers."""
    labels = [*dict.fromkeys([*study.ordered, *study.plan.labels()])]
    return _hyperparameters([row for label in choice.of(labels) for row in key_rows(study, label)], study, choice)


def survey_hyperparameters(survey: SettingsStudy, choice: Choice) -> Table:
    """The same in every setting."""
    labels, studies = choice.of(survey.ordered), survey.studies.items()
    rows = [{"setting": name, **row} for name, study in studies for label in labels for row in key_rows(study, label)]
    return _hyperparameters(rows, survey.first_study, choice)


def key_rows(study: Study, label: str) -> list[dict[str, Any]]:
    """Rows of a method: key, tried values (none if it was not tuned), chosen value, number of points."""
    plan = study.plan
    config = study.runs[label].config() if label in study.runs else {}
    space = {key: values for key, values in plan.spaces.get(label, {}).items() if len(values) > 1}
    chosen = plan.choices.get(label, {})
    own = {f"method.{key}": value for key, value in (config.get("method") or {}).items() if is_number(value)}
    own |= {} if space else {"train.lr": (config.get("train") or {}).get("lr")}
    found = [(key, by_size(values), chosen.get(key), len(plan.points(label))) for key, values in space.items()]
    found += [(key, [], value, 0) for key, value in own.items() if key not in space]
    return [dict(zip(("method", "key", "tried", "chosen", "points"), (label, *row), strict=True)) for row in found]


def _hyperparameters(rows: Sequence[dict[str, Any]], study: Study, choice: Choice) -> Table:
    """study: one of those whose rows these are, which were tuned alike."""
    heads = [*(["setting"] if rows and "setting" in rows[0] else []), "method", "key", "tried", "chosen", "candidates"]
    lines, before = [], dict[str, Any]()
    for row in rows:
        shown = {
            **row,
            "method": choice.name(row["method"]),
            "key": row["key"].removeprefix("method.").removeprefix("train."),
            "tried": tried_text(row["tried"]),
            "chosen": text_of(row["chosen"]),
            "candidates": str(row["points"] or ""),
        }
        if row.get("setting") == before.get("setting"):
            repeated = ["setting", *(["method", "candidates"] if row["method"] == before.get("method") else [])]
            shown |= dict.fromkeys(repeated, "")
        lines.append([Cell(shown[head]) for head in heads])
        before = row
    seeds = seed_range(sorted({entry.seed for entry in study.plan.entries if entry.role == "candidate"}))
    how = {"grid": "of its space", "random": "drawn at random from its space", "optuna": "proposed by Optuna"}
    notes = [
        f"Candidates: number {how[study.plan.search]} that were tried; chosen is the best mean validation "
        f"{study.metric.label} {POINT_NAMES[study.point]} over tuning {seeds}"
    ]
    tuned = [bool(row["tried"]) for row in rows]
    notes = [*notes, "" if all(tuned) else "Keys without tried values were not tuned"]
    frame = pd.DataFrame(rows).assign(tried=[" ".join(map(text_of, row["tried"])) for row in rows])
    name, left = "hyperparameters", heads.index("tried")
    notes = notes if any(tuned) else ["No method was tuned"]
    return Table(heads, lines, left, "Hyperparameters.", notes, name, choice.name_column(frame))


def by_size(values: Sequence[Any]) -> list[Any]:
    """Numbers from the smallest on; other values, which have no order, before them as they come."""
    return [*(v for v in values if not is_number(v)), *sorted(v for v in values if is_number(v))]


def tried_text(values: Sequence[Any]) -> str:
    """`0.1, 0.5`; of many numbers their range."""
    if len(values) > MOST_VALUES and all(map(is_number, values)):
        return f"{text_of(min(values))} to {text_of(max(values))}"
    return ", ".join(map(text_of, values))


def ablation(survey: SettingsStudy, choice: Choice) -> Table:
    """One row per setting, one column per method; against the first setting if clients have the same data in all.

    By default only the methods are shown that an option belongs to, if options vary and nothing else.
    """
    over, metric = survey.matrix.over, survey.first_study.metric
    varied = [label for label in survey.ordered if _is_varied(survey, label)]
    choice = replace(choice, methods=choice.methods or varied or survey.ordered)
    shown, keys = choice.of(survey.ordered), [*over]
    paired = not survey.is_race and not any(key.partition(".")[0] in SHARED for key in keys)
    found = {label: _between_settings(survey, label) if paired else ({}, None) for label in shown}
    boards, lines = [(setting, survey.boards[setting.name]) for setting in survey.settings], []
    for setting, board in boards:
        values = [Cell(text_of(setting.values[key])) for key in keys]
        for label in shown:
            (marks_of, best), text = found[label], with_half(board[label].score, metric.number)
            values.append(Cell(text, place=int(setting.name == best), mark=marks_of.get(setting.name, "")))
        lines.append(values)
    rows = [board[label] for _, board in boards for label in shown]
    marks = [mark for own, _ in found.values() for mark in own.values()]
    tested = paired and min(len(row.score.values) for row in rows) >= LEAST_SEEDS
    count = plural(len(boards) - 1, "comparison")
    how = f"paired t test over seeds, p < {ALPHA:.2g} after correction for {count} per method" if tested else ""
    apart = "Clients have other data in other rows, so that rows are not tested against each other"
    notes = [
        mean_note(rows),
        marks_note(Choice(reference=shown_name(boards[0][0])), how, marks).replace("method is", "value is"),
        "Bold: better than every other value by the same tests" if any(best for _, best in found.values()) else "",
        "" if paired or survey.is_race else apart,
    ]
    heads = [*map(key_name, keys), *map(choice.name, shown)]
    numbers = survey_numbers(survey, choice, shown)
    return Table(heads, lines, len(keys), caption_of(survey.first_study), notes, "ablation", numbers)


def _is_varied(survey: SettingsStudy, label: str) -> bool:
    """Whether options of methods alone vary, and those of this one."""
    keys = [*survey.matrix.over]
    if not all(key.startswith("method.") for key in keys):
        return False
    runs = [study.runs[label].config().get("method") for study in survey.studies.values() if label in study.runs]
    return any(run != runs[0] for run in runs[1:])


def _between_settings(survey: SettingsStudy, label: str) -> tuple[dict[str, str], str | None]:
    """A method's marks by setting against the first one, and the setting that is better than every other."""
    metric, point = survey.first_study.metric, survey.first_study.point
    metrics = {setting.name: survey.studies[setting.name].metrics[label] for setting in survey.settings}
    clients = {setting.name: survey.studies[setting.name].clients[label] for setting in survey.settings}
    outcomes = {setting.name: survey.studies[setting.name].runs[label].outcomes() for setting in survey.settings}
    scores, names = FinalScores.of(metric, metrics, clients, outcomes), [*metrics]
    marks = {found.method: mark_of(found) for found in family(scores, [(name, names[0]) for name in names[1:]], point)}
    means = {name: float(scores.rows[name, point, LAST][f"test_{metric.name}"].mean()) for name in names}
    best = sorted(names, key=lambda name: means[name], reverse=metric.higher)[0]
    ahead = family(scores, [(best, name) for name in names if name != best], point)
    return marks, best if len(ahead) == len(names) - 1 and all(found.sign > 0 for found in ahead) else None
