"""The tables at the head of a report: the leaderboard of a study, or those over its settings, and their files."""

from fedbench.report.leaderboard_table import (
    cost_table,
    leaderboard_frame,
    leaderboard_text,
    point_suffix,
    reasons,
    score_table,
)
from fedbench.report.scores import newcomers_text
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.settings_tables import settings_frame, settings_note, settings_tables, settings_text
from fedbench.report.table import Table
from fedbench.results.files import write_atomically


def score_tables(survey: SettingsStudy) -> list[Table]:
    """The leaderboard, or one or more tables with a column per setting."""
    if survey.has_settings:
        return settings_tables(survey)
    return [score_table(survey.first_study, [*survey.boards.get("", {}).values()])]


def boards_text(survey: SettingsStudy) -> str:
    """The tables for a terminal."""
    if survey.has_settings:
        return settings_text(survey)
    study = survey.first_study
    later = newcomers_text(study.newcomers, study.metric)
    return leaderboard_text(study, survey.rows) + (f"\n\n{later}\n" if later else "")


def write_boards(survey: SettingsStudy) -> None:
    """Writes table.csv, table.md and table.tex into the folder of the study."""
    tables, study, more = score_tables(survey), survey.first_study, list[str]()
    if survey.has_settings:
        frame, note = settings_frame(survey), settings_note(survey, tables)
    else:
        frame, costs = leaderboard_frame(study, survey.rows), cost_table(survey.rows)
        about = f"Test {study.metric.label}{point_suffix(study, survey.rows)}"
        note = "; ".join([about, *tables[0].notes, *reasons(study.failures)])
        more = [costs.markdown(), costs.intro]
    several = len(tables) > 1
    shown = [f"**{table.title}**\n\n" * several + table.markdown() for table in tables]
    texts = [f"% {table.title}\n" * several + table.latex() for table in tables]
    write_atomically(survey.folder / "table.csv", frame.to_csv(index=False))
    write_atomically(survey.folder / "table.md", "\n\n".join([*shown, f"{note}.", *more]) + "\n")
    write_atomically(survey.folder / "table.tex", f"% {note}\n" + "\n".join(texts))
