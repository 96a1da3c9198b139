"""The tables of a study over settings: a line per method and a column per setting."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from fedbench.report.doubts import doubt_of_winner
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.leaderboard_table import NEWCOMERS_NOTE, sequential_columns
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.table import Column, Table, numbers_of
from fedbench.report.typeset import Cell, ranks_in_column, with_half
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import ends_of
from fedbench.results.tables import BASELINE

NOTE = (
    "± half of the 95 % interval over seeds, and over test samples where their outcomes were kept; = cannot be told "
    "from the best of its column, after the correction for "
    "the number of comparisons; rank: mean over settings and seeds, 1 the best"
)
SEQUENTIAL_NOTE = (
    "scores with their number of seeds, which differ; bold: the best of its column, = may be the best, each by the "
    "verdict; differences with their simultaneous intervals; given up: the maximum of seeds would hardly decide it; "
    "withheld: it does not hold without an outlying seed, or there is a doubt, which the notes name"
)
SCORES, AGAINST_LOCAL, WHO_IS_BEST, NEWCOMERS = "Scores", "Against local training", "Who is best", "Newcomers"


def settings_tables(survey: SettingsStudy) -> list[Table]:
    """One table with ranks, of sequential tests the scores and both verdicts; and that of newcomers, if any joined."""
    tables = sequential_tables(survey) if survey.is_sequential else [ranked_table(survey)]
    number = survey.first_study.metric.number
    newcomers = _table(
        survey,
        NEWCOMERS,
        lambda row: Cell("" if row.newcomers is None else with_half(row.newcomers, number)),
        survey.ordered,
    )
    return [*tables, *([newcomers] if any(cell.text for line in newcomers.lines for cell in line[1:]) else [])]


def _table(
    survey: SettingsStudy,
    title: str,
    cell: Callable[[LeaderboardRow], Cell],
    labels: Sequence[str],
    *more: Column[str],
) -> Table:
    """A line for each of these methods. cell: of its row in a setting; more: columns beside those of the settings."""

    def at(setting: str, label: str) -> Cell:
        return cell(survey.boards[setting][label])

    columns = [Column[str](setting.name, partial(at, setting.name)) for setting in survey.settings]
    method = Column[str]("method", lambda label: Cell(label, method=label))
    return Table.of([method, *columns, *more], labels, least=1 + len(columns) + len(more), title=title)


def ranked_table(survey: SettingsStudy) -> Table:
    """The scores, the two best of each setting marked, and the mean rank."""
    metric, labels = survey.first_study.metric, survey.ordered
    places = {
        id(row): order
        for board in survey.boards.values()
        for rows in [[board[label] for label in labels]]
        for row, order in zip(
            rows,
            ranks_in_column([None if r.is_reference else r.score.mean for r in rows], metric.higher),
            strict=True,
        )
    }
    ranks = {label: survey.ranking.ranks.get(label) for label in labels}
    best = dict(zip(labels, ranks_in_column([*ranks.values()], higher=False), strict=True))

    def score(row: LeaderboardRow) -> Cell:
        return Cell(with_half(row.score, metric.number) + row.mark, places[id(row)], row.tied, row.tone)

    def rank(label: str) -> Cell:
        mean = ranks[label]
        return Cell("" if mean is None else f"{mean:.2f}", best[label])

    return _table(survey, SCORES, score, labels, Column("rank", rank))


def sequential_tables(survey: SettingsStudy) -> list[Table]:
    """The tables of sequential tests."""
    competing = [label for label in survey.ordered if label not in survey.references]
    return [
        _table(survey, SCORES, _sequential_score, survey.ordered),
        _table(survey, AGAINST_LOCAL, _against_local, [label for label in competing if label != BASELINE]),
        _table(survey, WHO_IS_BEST, _who_is_best, competing),
    ]


def _sequential_score(row: LeaderboardRow) -> Cell:
    study, test = row.study, _test_of(row)
    is_best = test.ending == "winner" and row.label == test.leader and not doubt_of_winner(study, test)
    may_be_best = test.look > 0 and test.ending != "winner" and row.label in test.candidates
    text = f"{study.metric.number(row.score.mean)} ({len(row.score.values)})"
    return Cell(text, int(is_best), may_be_best, row.tone)


def _test_of(row: LeaderboardRow) -> SequentialTest:
    assert row.study.sequential_test is not None
    return row.study.sequential_test


def _against_local(row: LeaderboardRow) -> Cell:
    interval, verdict = (column.cell(row).text for column in sequential_columns(row.study.metric)[1:3])
    return Cell(", ".join(filter(None, (interval, verdict))), tone=row.tone)


def _who_is_best(row: LeaderboardRow) -> Cell:
    interval, verdict = (column.cell(row).text for column in sequential_columns(row.study.metric)[3:])
    return Cell(", ".join(filter(None, (interval, verdict))))


def settings_note(survey: SettingsStudy, tables: Sequence[Table]) -> str:
    """Explains the signs in these tables."""
    later = f"; {NEWCOMERS_NOTE}" if tables[-1].title == NEWCOMERS else ""
    return (SEQUENTIAL_NOTE if survey.is_sequential else NOTE) + later


def settings_text(survey: SettingsStudy) -> str:
    """The tables for a terminal."""
    if not survey.labels:
        return "nothing was evaluated yet"
    tables = settings_tables(survey)
    note = settings_note(survey, tables)
    if len(tables) == 1:
        return f"{tables[0].plain()}\n{note}"
    return "\n\n".join([*(f"{table.title}\n{table.plain()}" for table in tables), f"{note}\n"])


def settings_frame(survey: SettingsStudy) -> pd.DataFrame:
    """Numbers: one row per setting and method; failed methods come last."""
    settings = {setting.name: {"setting": setting.name, **setting.values} for setting in survey.settings}
    rows = [
        {**known, "method": label, "status": "done", **_numbers(survey, survey.boards[name][label])}
        for name, known in settings.items()
        for label in survey.ordered
    ]
    failed = [
        {**known, "method": label, "status": "failed", "error": why}
        for name, known in settings.items()
        for label, why in survey.studies[name].failures.items()
    ]
    return pd.DataFrame([*rows, *failed])


def _numbers(survey: SettingsStudy, row: LeaderboardRow) -> dict[str, Any]:
    """The columns of a method in a setting."""
    later = {} if row.newcomers is None else ends_of("newcomers", row.newcomers)
    if row.standing is not None:
        return {"mean": row.score.mean, **later, **numbers_of(sequential_columns(row.study.metric), row)}
    rank = survey.ranking.ranks.get(row.label)
    ends = {"mean": row.score.mean, "low": row.score.low, "high": row.score.high}
    return {**ends, **later, "tied_with_best": row.tied, "mean_rank": rank}
