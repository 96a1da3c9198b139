"""Tables for papers: scores, chosen hyperparameters, and ablations, as LaTeX, Markdown or CSV.

A table has few columns, and its note says what it means. It makes no claim that the study does not: a score is in bold
only if the study names a winner, and marks stand for differences that are significant after the correction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.report.evidence import evidence_lines
from fedbench.report.leaderboard import OTHER_POINT, LeaderboardRow
from fedbench.report.leaderboard_table import leaderboard_frame
from fedbench.report.paper_notes import (
    Choice,
    Marks,
    bold_note,
    caption_of,
    marks_note,
    mean_note,
    pooled_note,
    settings_numbers,
    shown_name,
)
from fedbench.report.scores import worst_note
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.table import Column, Table
from fedbench.report.typeset import Cell, join_words, sentence, with_half
from fedbench.report.verdicts import BEST, bound_text, mark_of
from fedbench.results.contrasts import Contrast, family
from fedbench.results.estimators import estimator_remark
from fedbench.results.plan import is_number, key_name, text_of
from fedbench.results.quantities import seed_range
from fedbench.results.settings_file import Setting
from fedbench.results.statistics import LEAST_SEEDS
from fedbench.results.tables import BASELINE, LAST, FinalScores
from fedbench.results.unscored import worst_label
from fedbench.results.verdict import ALPHA, Verdict
from fedbench.tasks import Metric

MOST_VALUES = 6
"""Maximum number of tried values of a key that a table lists."""
SEARCHES = {"grid": "of its space", "random": "drawn at random from its space", "optuna": "proposed by Optuna"}
SHARED = ("partition", "data", "public", "participation")
"""Sections that decide which images a client has: settings that differ in them cannot be compared client by client."""


def paper_table(folder: Path, what: str, choice: Choice) -> Table:
    """A table of a study. Raises ConfigError if it has none of this name, or no results."""
    survey = SettingsStudy.load(folder)
    makers = {"scores": scores, "hyperparameters": hyperparameters}
    makers |= {"ablation": ablation} if survey.has_settings else {}
    if what == "ablation" and what not in makers:
        raise ConfigError(f"{folder}: no ablation here; it is a table of a comparison with --over, one row per value")
    if what not in makers:
        raise ConfigError(f"table = {what}: must be one of {', '.join(makers)}")
    if not survey.labels:
        raise ConfigError(f"{folder}: nothing was evaluated yet")
    return makers[what](survey, choice)


def scores(survey: SettingsStudy, choice: Choice) -> Table:
    """The scores of a study, or methods by setting."""
    return settings_scores(survey, choice) if survey.has_settings else study_scores(survey, choice)


def study_scores(survey: SettingsStudy, choice: Choice) -> Table:
    """Scores at both evaluation points, of the worst clients, and the difference to the reference."""
    study, rows = survey.first_study, survey.boards[""]
    shown, marked = choice.of([*rows]), Marks(study, rows, choice.reference or BASELINE)
    doubted = [label for label in shown if label in marked.doubts]
    metric, kinds = study.metric, [study.estimators[label] for label in shown]
    notes = [
        mean_note([*rows.values()]),
        marks_note(choice, marked.how(), [marked.marks.get(label, "") for label in shown]),
        *(f"In brackets, because there is a doubt: {choice.name(m)} ({marked.doubts[m]})" for m in doubted),
        bold_note(marked, choice),
    ]
    more = [
        pooled_note(choice, shown, study.plan.references),
        *evidence_lines(study),
        sentence(estimator_remark(metric, kinds)),
        *(f"{choice.name(label)} failed: {why}" for label, why in study.failures.items()),
    ]
    shown_rows = [rows[label] for label in shown]
    numbers = choice.name_column(leaderboard_frame(study, shown_rows))
    columns = study_columns(marked, choice, worst_label([count for row in shown_rows for count in row.scored]))
    table = Table.of(columns, shown_rows, 1, notes, title=caption_of(study), name="scores", numbers=numbers)
    return replace(table, notes=[*table.notes, *filter(None, more)])


def study_columns(marked: Marks, choice: Choice, worst: str) -> list[Column[LeaderboardRow]]:
    """The columns of scores. worst: the head of the column of the worst clients."""
    study, metric = marked.study, marked.study.metric
    number = metric.number
    plain = partial(Column[LeaderboardRow], form=number)
    with_ends = partial(Column[LeaderboardRow], form=partial(with_half, number=number))
    is_sequential = study.sequential_test is not None
    sd_note = "sd: over seeds; differences: simultaneous intervals at the seeds that decided them"
    worst_means = f"{sentence(worst_note(worst))}, its interval over seeds alone"
    over = f"over {choice.name(marked.reference)}{', points' if metric.share else ''}"
    return [
        Column("method", lambda row: choice.name(row.label) + row.mark),
        Column(metric.title, lambda row: marked.cell(row.label)),
        plain("sd", lambda row: row.score.sd if is_sequential else None, note=sd_note),
        with_ends(POINT_NAMES[OTHER_POINT[study.point]], lambda row: row.other),
        with_ends(worst, lambda row: row.worst, note=worst_means),
        plain("client sd", lambda row: row.spread, note="Client sd: standard deviation over a seed's clients"),
        Column(over, lambda row: marked.verdicts.get(row.label), partial(difference_text, metric)),
    ]


def difference_text(metric: Metric, verdict: Verdict) -> str:
    """A difference with half of its interval, of a sequential test with both ends."""
    if isinstance(verdict, Contrast):
        return with_half(verdict.interval, metric.difference, metric.number)
    return bound_text(metric, verdict.interval)


def settings_scores(survey: SettingsStudy, choice: Choice) -> Table:
    """Methods by setting, with their mean ranks."""
    shown, studies, reference = choice.of(survey.ordered), survey.studies, choice.reference or BASELINE
    marked = {name: Marks(studies[name], board, reference) for name, board in survey.boards.items()}
    ranks = {} if survey.is_sequential else survey.ranking.ranks
    marks = [setting_marks.marks.get(label, "") for setting_marks in marked.values() for label in shown]
    bold = "better than every other method of the setting by the same tests"
    any_best = any(setting_marks.best for setting_marks in marked.values())
    ahead = any(setting_marks.ahead for setting_marks in marked.values())
    in_doubt = any(setting_marks.doubts for setting_marks in marked.values())
    notes = [
        mean_note([row for setting_marks in marked.values() for row in setting_marks.rows.values()]),
        marks_note(choice, how_settings_are_tested(marked), marks),
        "In brackets: there is a doubt, which the setting's page names" if in_doubt else "",
        f"{BEST} {bold}, but there is a doubt, which the setting's page names" if ahead else "",
        f"Bold: {bold}" if any_best else f"Nothing is in bold, because no method is {bold}{' without a doubt' * ahead}",
        "Rank: mean over settings and seeds, 1 is the best" if ranks else "",
        pooled_note(choice, shown, survey.references),
        *(f"Left out, because it failed: {label} ({why})" for label, why in _left_out(survey, choice).items()),
    ]

    def score(setting_marks: Marks, label: str) -> Cell:
        return setting_marks.cell(label, setting_marks.rows[label].mark)

    columns = [
        Column("method", choice.name),
        *(Column[str](shown_name(setting), partial(score, marked[setting.name])) for setting in survey.settings),
        Column("rank", ranks.get, "{:.2f}".format),
    ]
    title, numbers = caption_of(survey.first_study), settings_numbers(survey, choice, shown)
    return Table.of(columns, shown, 1, notes, title=title, name="scores", numbers=numbers)


def _left_out(survey: SettingsStudy, choice: Choice) -> dict[str, str]:
    """The methods that the table lacks because they failed in a setting, with the setting and the error.

    None if methods were chosen for the table.
    """
    return {
        choice.name(label): f"{shown_name(setting)}: {why}"
        for setting in survey.settings
        for label, why in survey.studies[setting.name].failures.items()
        if label not in survey.labels and not choice.methods
    }


def how_settings_are_tested(marked: Mapping[str, Marks]) -> str:
    """By which tests methods are compared in each setting: one text, or one per setting where they differ."""
    names: dict[str, list[str]] = {}
    for name, marks in marked.items():
        names.setdefault(marks.how(), []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"in {join_words(marks)} {how or 'too few seeds for a test'}" for how, marks in names.items())


def hyperparameters(survey: SettingsStudy, choice: Choice) -> Table:
    """A line for every key of a method, in every setting."""
    rows = [
        {**({"setting": name} if survey.has_settings else {}), **row}
        for name, study in survey.studies.items()
        for label in choice.of(survey.known)
        for row in key_rows(study, label)
    ]
    study = survey.first_study  # those of other settings are tuned alike
    words = ["setting", "method", "key"] if survey.has_settings else ["method", "key"]
    columns = [Column[dict[str, str]](head, itemgetter(head)) for head in (*words, "tried", "chosen", "candidates")]
    seeds = seed_range(sorted({entry.seed for entry in study.plan.entries if entry.role == "candidate"}))
    notes = [
        f"Candidates: number {SEARCHES[study.plan.search]} that were tried; chosen is the best mean validation "
        f"{study.metric.label} {POINT_NAMES[study.point]} over tuning {seeds}",
        "" if all(row["tried"] for row in rows) else "Keys without tried values were not tuned",
    ]
    notes = notes if any(row["tried"] for row in rows) else ["No method was tuned"]
    frame = pd.DataFrame(rows).assign(tried=[" ".join(map(text_of, row["tried"])) for row in rows])
    return Table.of(
        columns,
        _lines(rows, choice),
        len(words),
        notes,
        left=len(words),
        title="Hyperparameters.",
        name="hyperparameters",
        numbers=choice.name_column(frame),
    )


def _lines(rows: Sequence[dict[str, Any]], choice: Choice) -> list[dict[str, str]]:
    """The rows as shown; what a row has in common with the one above it is left out."""
    lines, above = [], dict[str, Any]()
    for row in rows:
        line = {
            "setting": row.get("setting", ""),
            "method": choice.name(row["method"]),
            "key": row["key"].removeprefix("method.").removeprefix("train."),
            "tried": tried_text(row["tried"]),
            "chosen": text_of(row["chosen"]),
            "candidates": str(row["points"] or ""),
        }
        if above and row.get("setting") == above.get("setting"):
            line["setting"] = ""
            if row["method"] == above["method"]:
                line |= {"method": "", "candidates": ""}
        lines.append(line)
        above = row
    return lines


def key_rows(study: Study, label: str) -> list[dict[str, Any]]:
    """Rows of a method: key, tried values (none if it was not tuned), chosen value, number of points."""
    plan = study.plan
    config = study.runs[label].config() if label in study.runs else {}
    space = {key: values for key, values in plan.spaces.get(label, {}).items() if len(values) > 1}
    chosen = plan.choices.get(label, {})
    numbers = {f"method.{key}": value for key, value in (config.get("method") or {}).items() if is_number(value)}
    numbers |= {} if space else {"train.lr": (config.get("train") or {}).get("lr")}
    keys = [(key, by_size(values), chosen.get(key), len(plan.points(label))) for key, values in space.items()]
    keys += [(key, [], value, 0) for key, value in numbers.items() if key not in space]
    return [dict(zip(("method", "key", "tried", "chosen", "points"), (label, *row), strict=True)) for row in keys]


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
    settings, keys = survey.settings, [*survey.file.over]
    varied = [label for label in survey.ordered if _is_varied(survey, label)]
    choice = replace(choice, methods=choice.methods or varied or survey.ordered)
    shown = choice.of(survey.ordered)
    paired = not survey.is_sequential and not any(key.partition(".")[0] in SHARED for key in keys)
    tests = {label: _between_settings(survey, label) if paired else ({}, None) for label in shown}

    def score(label: str, setting: Setting) -> Cell:
        (marks, best), row = tests[label], survey.boards[setting.name][label]
        text = with_half(row.score, row.study.metric.number)
        return Cell(text, place=int(setting.name == best), mark=marks.get(setting.name, ""))

    def value(key: str, setting: Setting) -> str:
        return text_of(setting.values[key])

    rows = [survey.boards[setting.name][label] for setting in settings for label in shown]
    tested = paired and min(len(row.score.values) for row in rows) >= LEAST_SEEDS
    count = plural(len(settings) - 1, "comparison")
    how = f"paired t test over seeds, p < {ALPHA:.2g} after correction for {count} per method" if tested else ""
    marks = [mark for marks, _ in tests.values() for mark in marks.values()]
    notes = [
        mean_note(rows),
        marks_note(Choice(reference=shown_name(settings[0])), how, marks).replace("method is", "value is"),
        "Bold: better than every other value by the same tests" if any(best for _, best in tests.values()) else "",
        ""
        if paired or survey.is_sequential
        else "Clients have other data in other rows, so that rows are not tested against each other",
    ]
    columns = [
        *(Column[Setting](key_name(key), partial(value, key)) for key in keys),
        *(Column[Setting](choice.name(label), partial(score, label)) for label in shown),
    ]
    title, numbers = caption_of(survey.first_study), settings_numbers(survey, choice, shown)
    return Table.of(columns, settings, len(keys), notes, left=len(keys), title=title, name="ablation", numbers=numbers)


def _is_varied(survey: SettingsStudy, label: str) -> bool:
    """Whether options of methods alone vary, and those of this one."""
    keys = [*survey.file.over]
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
    marks = {one.method: mark_of(one) for one in family(scores, [(name, names[0]) for name in names[1:]], point)}
    means = {name: float(scores.rows[name, point, LAST][f"test_{metric.name}"].mean()) for name in names}
    best = sorted(names, key=lambda name: means[name], reverse=metric.higher)[0]
    ahead = family(scores, [(best, name) for name in names if name != best], point)
    return marks, best if len(ahead) == len(names) - 1 and all(verdict.sign > 0 for verdict in ahead) else None
