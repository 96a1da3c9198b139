"""The report of a study over settings: methods by setting, mean ranks, and ties."""

from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import yaml

from fedbench.config.words import plural
from fedbench.report import typeset
from fedbench.report.answer import settings_answer
from fedbench.report.doubts import doubt_of_winner
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.leaderboard_table import NEWCOMERS_NOTE, race_columns
from fedbench.report.notes import settings_notes
from fedbench.report.parts import LEAST_CHOSEN, ChartSection, charts
from fedbench.report.settings_sections import FILE, keys_part, summary_frame, summary_part
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.table import Table, numbers_of
from fedbench.report.template import page_of
from fedbench.report.theme import LETTER, LIGHT, axis, figure
from fedbench.report.typeset import Cell, join_words, sentence, with_half
from fedbench.report.verdicts import RACE_TONES, TONES, margin_text
from fedbench.results.files import write_atomically
from fedbench.results.plan import text_of
from fedbench.results.quantities import seed_range
from fedbench.results.remarks import as_doubts, beside_row, with_methods
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import ends_of
from fedbench.results.tables import BASELINE, REFERENCES

MATRIX_NOTE = (
    "± half of the 95 % interval over seeds, and over test samples where their outcomes were kept; = cannot be told "
    "from the best of its column, after the correction for "
    "the number of comparisons; rank: mean over settings and seeds, 1 the best"
)

SCORES, AGAINST_LOCAL, WHO_IS_BEST = "Scores", "Against local training", "Who is best"
"""The tables, each with a column per setting."""
MATRIX_RACE_NOTE = (
    "scores with their number of seeds, which differ; bold: the best of its column, = may be the best, each by the "
    "verdict; differences with their simultaneous intervals; given up: the maximum of seeds would hardly decide it; "
    "withheld: it does not hold without an outlying seed, or there is a doubt, which the notes name"
)


def matrix_tables(survey: SettingsStudy) -> list[Table]:
    """One table with ranks; of races the scores and both verdicts; and that of newcomers, if any joined."""
    names = ["method", *(setting.name for setting in survey.settings)]
    if survey.is_race:
        found = [Table(names, lines, title=title) for title, lines in race_tables(survey).items()]
    else:
        found = [Table([*names, "rank"], matrix_lines(survey), title="Scores")]
    if lines := newcomer_lines(survey):
        found.append(Table(names, lines, title="Newcomers"))
    return found


def race_tables(survey: SettingsStudy) -> dict[str, list[list[Cell]]]:
    """The tables of sequential tests by name: one line per method, one column per setting."""
    cells = {SCORES: _race_score, AGAINST_LOCAL: _against_local, WHO_IS_BEST: _who_is_best}
    return {
        name: [
            [Cell(label), *(cell(study, race, survey.boards[setting][label]) for setting, study, race in survey.races)]
            for label in survey.ordered
            if name == SCORES or label not in (REFERENCES if name == WHO_IS_BEST else (BASELINE, *REFERENCES))
        ]
        for name, cell in cells.items()
    }


def _race_score(study: Study, race: SequentialTest, row: LeaderboardRow) -> Cell:
    is_best = race.ending == "winner" and row.label == race.leader and not doubt_of_winner(study, race)
    may_be_best = race.look > 0 and race.ending != "winner" and row.label in race.candidates
    text = f"{study.metric.number(row.score.mean)} ({len(row.score.values)})"
    return Cell(text, int(is_best), may_be_best, row.tone)


def _against_local(study: Study, race: SequentialTest, row: LeaderboardRow) -> Cell:
    interval, verdict = (column.cell(row).text for column in race_columns(study.metric)[1:3])
    return Cell(", ".join(filter(None, (interval, verdict))), tone=row.tone)


def _who_is_best(study: Study, race: SequentialTest, row: LeaderboardRow) -> Cell:
    interval, verdict = (column.cell(row).text for column in race_columns(study.metric)[3:])
    if race.ending == "winner" and row.label == race.leader and doubt_of_winner(study, race):
        verdict = "ahead of all, but in doubt"
    return Cell(", ".join(filter(None, (interval, verdict))))


def race_subtitle(survey: SettingsStudy) -> str:
    """The rules of the sequential tests, fixed beforehand."""
    rules = survey.first_study.plan.race or {}
    return f"margin {margin_text(survey.first_study)}, at most {plural(int(rules['most']), 'seed')}"


def newcomer_lines(survey: SettingsStudy) -> list[list[Cell]]:
    """The scores of newcomers by method and setting; empty if none joined."""
    number, lines = survey.first_study.metric.number, []
    for label in survey.ordered:
        found = [survey.boards[setting.name][label].newcomers for setting in survey.settings]
        lines.append([Cell(label), *(Cell("" if score is None else with_half(score, number)) for score in found)])
    return lines if any(cell.text for _, *cells in lines for cell in cells) else []


def matrix_lines(survey: SettingsStudy) -> list[list[Cell]]:
    """The table: one line per method, one column per setting, and the mean rank."""
    columns = [_column(survey, setting.name) for setting in survey.settings]
    ranks = [survey.ranking.ranks.get(label) for label in survey.ordered]
    last = [
        Cell("" if rank is None else f"{rank:.2f}", place)
        for rank, place in zip(ranks, typeset.ranks_in_column(ranks, higher=False), strict=True)
    ]
    names = [Cell(label) for label in survey.ordered]
    return [list(line) for line in zip(names, *columns, last, strict=True)]


def _column(survey: SettingsStudy, name: str) -> list[Cell]:
    board, metric = survey.boards[name], survey.first_study.metric
    means = {label: board[label].score.mean for label in survey.ordered}
    marks = typeset.ranks_in_column(
        [None if label in REFERENCES else mean for label, mean in means.items()], metric.higher
    )
    return [
        Cell(
            with_half(board[label].score, metric.number) + board[label].mark,
            place,
            board[label].tied,
            board[label].tone,
        )
        for label, place in zip(survey.ordered, marks, strict=True)
    ]


def matrix_text(survey: SettingsStudy) -> str:
    """The tables for a terminal."""
    if not survey.labels:
        return "nothing was evaluated yet"
    tables = matrix_tables(survey)
    if len(tables) == 1:
        return f"{tables[0].plain()}\n{matrix_note(survey)}"
    titled = [f"{table.title}\n{table.plain()}" for table in tables]
    return "\n\n".join([*titled, f"{matrix_note(survey)}\n"])


def matrix_note(survey: SettingsStudy) -> str:
    """What the signs in the tables mean."""
    later = f"; {NEWCOMERS_NOTE}" if newcomer_lines(survey) else ""
    return (MATRIX_RACE_NOTE if survey.is_race else MATRIX_NOTE) + later


def matrix_frame(survey: SettingsStudy) -> pd.DataFrame:
    """Numbers: one row per setting and method."""
    return pd.DataFrame(
        [
            {
                "setting": setting.name,
                **setting.values,
                "method": label,
                "status": "done",
                **_numbers(survey, survey.boards[setting.name][label]),
            }
            for setting in survey.settings
            for label in survey.ordered
        ]
        + [
            {"setting": setting.name, **setting.values, "method": label, "status": "failed", "error": why}
            for setting in survey.settings
            for label, why in survey.studies[setting.name].failures.items()
        ]
    )


def _numbers(survey: SettingsStudy, row: LeaderboardRow) -> dict[str, Any]:
    """The columns of a method in a setting."""
    later = {} if row.newcomers is None else ends_of("newcomers", row.newcomers)
    if row.race is not None:
        return {"mean": row.score.mean, **later, **numbers_of(race_columns(row.study.metric), row)}
    return {
        "mean": row.score.mean,
        "low": row.score.low,
        "high": row.score.high,
        **later,
        "tied_with_best": row.tied,
        "mean_rank": survey.ranking.ranks.get(row.label),
    }


def matrix_doubts(survey: SettingsStudy) -> list[str]:
    """The doubts about the numbers of methods in all settings, each once with its methods."""
    own: dict[str, list[str]] = {}
    for study in survey.studies.values():
        for label, summary in study.summaries.items():
            own.setdefault(label, []).extend(as_doubts(beside_row(summary["doubts"])))
    return with_methods(own)


def critical_difference(survey: SettingsStudy) -> go.Figure | None:
    """Mean ranks on a line, best to the left; a bar joins methods that cannot be told apart (after Demsar 2006)."""
    found = survey.ranking
    names = list(found.ranks)
    if len(names) < 2 or not found.blocks:
        return None
    half = (len(names) + 1) // 2
    fig = figure(110 + 22 * half + 14 * len(found.groups))
    top = len(found.groups) + 1
    span = [min(found.ranks.values()) - 0.3, max(found.ranks.values()) + 0.3]
    wide = round(LETTER * max(map(len, names)) + 50)
    fig.update_layout(
        margin={"l": wide, "r": wide, "t": 40, "b": 12},
        xaxis=axis("mean rank", side="top", range=span, showgrid=False, dtick=1 if span[1] - span[0] > 2 else None),
        yaxis=axis(range=[-half - 0.5, top], visible=False),
    )
    for level, group in enumerate(found.groups):
        ends = [found.ranks[group[0]] - 0.04, found.ranks[group[-1]] + 0.04]
        fig.add_scatter(x=ends, y=[top - 1 - level] * 2, mode="lines", line={"color": LIGHT["accent"], "width": 6})
        fig.data[-1].hovertemplate = f"{escape(join_words(group))}: not told apart<extra></extra>"
    for place, name in enumerate(names):
        left = place < half
        y, rank = -(place if left else len(names) - 1 - place) - 0.2, found.ranks[name]
        colour = LIGHT["local"] if name == BASELINE else LIGHT["ink"]
        fig.add_scatter(x=[rank, rank, span[0] if left else span[1]], y=[top, y, y], mode="lines", hoverinfo="skip")
        fig.data[-1].line = {"color": LIGHT["quiet"], "width": 1}
        fig.add_annotation(
            x=0 if left else 1,
            xref="paper",
            y=y,
            text=f"{escape(name)} {rank:.2f}",
            showarrow=False,
            xanchor="right" if left else "left",
            font={"color": colour, "size": 13},
        )
    return fig


def write_matrix(folder: Path) -> Path:
    """Writes report.html, table.csv, table.md and table.tex into the folder of a study over settings."""
    survey = SettingsStudy.load(folder)
    tables, note = matrix_tables(survey), matrix_note(survey)
    several = len(tables) > 1
    shown = [f"**{table.title}**\n\n" * several + table.markdown() for table in tables]
    drawn = [f"% {table.title}\n" * several + table.latex() for table in tables]
    write_atomically(folder / "table.csv", matrix_frame(survey).to_csv(index=False))
    write_atomically(folder / "table.md", "\n\n".join([*shown, f"{note}.\n"]))
    write_atomically(folder / "table.tex", f"% {note}\n" + "\n".join(drawn))
    if survey.summary is not None:
        write_atomically(folder / FILE, summary_frame(survey.summary).to_csv(index=False))
    write_atomically(folder / "report.html", page_of("matrix.html.j2", **matrix_values(survey)))
    return folder / "report.html"


def matrix_values(survey: SettingsStudy) -> dict[str, Any]:
    """The values of the template."""
    metric, point = survey.first_study.metric, POINT_NAMES[survey.first_study.point]
    counts = plural(len(survey.labels), "method"), plural(len(survey.settings), "setting")
    config = survey.matrix.config
    over = [f"{key}: {join_words(list(map(text_of, asked)))}" for key, asked in survey.matrix.over.items()]
    seeds = race_subtitle(survey) if survey.is_race else seed_range(config.get("seeds") or [])
    note = sentence(matrix_note(survey))
    return {
        "kind": "compare",
        "title": " in ".join(counts),
        "asked": "; ".join(filter(None, [*over, seeds])),
        "answer": settings_answer(survey),
        "besides": settings_notes(survey),
        "tables": matrix_tables(survey),
        "links": {setting.name: f"{setting.path}/report.html" for setting in survey.settings},
        "tones": RACE_TONES if survey.is_race else TONES,
        "colours": survey.first_study.colours,
        "chips": survey.ordered if len(survey.ordered) >= LEAST_CHOSEN else [],
        "quiet": LIGHT["quiet"],
        "note": f"Test {metric.title} {point}, last round. {note}.",
        "config": yaml.safe_dump(config, sort_keys=False),
        "parts": matrix_parts(survey),
        "warnings": matrix_warnings(survey) + matrix_doubts(survey),
    }


def matrix_parts(survey: SettingsStudy) -> list[ChartSection]:
    """The sections with figures."""
    return [part for part in [rank_part(survey), keys_part(survey), summary_part(survey)] if part.charts]


def rank_part(survey: SettingsStudy) -> ChartSection:
    if survey.is_race:
        return ChartSection("ranks", "Ranks")
    intro = "Mean rank over settings and seeds, best to the left. A bar joins methods that cannot be told apart."
    return ChartSection("ranks", "Ranks", charts(("ranks", "", critical_difference(survey), ""), wide=True), intro)


def matrix_warnings(survey: SettingsStudy) -> list[str]:
    """Settings without numbers, and failures in a setting."""
    missing = [s.name for s in survey.matrix.settings if s.name not in survey.boards]
    found = [f"{join_words(missing)}: nothing was evaluated yet."] if missing else []
    for name, study in survey.studies.items():
        found += [f"{name}: {entry.label} {entry.name} failed: {entry.error}" for entry in study.plan.failed()]
        left = [label for label in study.plan.labels() if label not in survey.labels]
        found += [f"{name}: {join_words(left)}: not evaluated in every setting, so not in the table."] if left else []
    return found
