"""The report of a study or a run: one self-contained HTML page with texts, tables, figures and configuration."""

import logging
from pathlib import Path
from typing import Any

import yaml

from fedbench.config.words import plural
from fedbench.installation import install, missing
from fedbench.report import footer, headline, scores
from fedbench.report.answer import answer
from fedbench.report.boards import score_tables, write_boards
from fedbench.report.evidence import client_evidence
from fedbench.report.leaderboard_table import cost_table, point_suffix
from fedbench.report.notes import notes
from fedbench.report.parts import LEAST_CHOSEN, ChartSection
from fedbench.report.settings_sections import FILE, settings_sections, summary_frame
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.settings_tables import settings_note
from fedbench.report.study import POINT_NAMES
from fedbench.report.study_sections import picture_files, study_sections
from fedbench.report.table import Table
from fedbench.report.template import page_of
from fedbench.report.theme import LIGHT
from fedbench.report.typeset import sentence
from fedbench.report.verdicts import SEQUENTIAL_TONES, TONES
from fedbench.results.files import write_atomically

log = logging.getLogger("fedbench")

OPTIONAL = (
    *("tiles", "boards", "links", "costs", "final", "groups", "tested", "newcomers"),
    *("differences", "environment", "failed", "decisions", "data"),
)
"""Parts of the template that not every page has."""


def write_page(folder: Path) -> Path:
    """Writes report.html and its files into the folder of a study or a run and returns its path."""
    survey = SettingsStudy.load(folder)
    if survey.has_settings or survey.rows or has_failed_methods(survey):
        write_boards(survey)
    if survey.has_settings and survey.summary is not None:
        write_atomically(folder / FILE, summary_frame(survey.summary).to_csv(index=False))
    if not survey.has_settings:
        _write_study_files(survey)
    path = folder / "report.html"
    write_atomically(path, page_of("page.html.j2", **page_values(survey)))
    for line in [] if survey.has_settings else survey.first_study.problems:
        log.warning("%s", line)
    return path


def has_failed_methods(survey: SettingsStudy) -> bool:
    """Whether methods are compared and some have no score."""
    return survey.first_study.plan.subject is None and bool(survey.first_study.failures)


def _write_study_files(survey: SettingsStudy) -> None:
    """Pictures of the curves, and tables of groups and newcomers."""
    study, folder = survey.first_study, survey.folder
    if survey.rows and missing("plots"):
        for stale in (*picture_files(folder, "curves"), *picture_files(folder, "costs")):
            (folder / stale).unlink()
        log.info(f"the curves are on the page, and not in files: these need matplotlib ({install('plots')})")
    elif survey.rows:
        from fedbench.report.pictures import write_pictures

        write_pictures(study, folder)
    for name, frame in (("groups", study.groups), ("newcomers", study.newcomers)):
        if len(frame):
            write_atomically(folder / f"{name}.csv", frame.to_csv(index=False))


def page_values(survey: SettingsStudy) -> dict[str, Any]:
    """The values of the template."""
    study = survey.first_study
    methods = survey.ordered
    return {
        "asked": headline.subtitle(survey),
        "answer": answer(survey),
        "besides": notes(survey),
        "tones": SEQUENTIAL_TONES if survey.is_sequential else TONES,
        "colours": study.colours,
        "chips": methods if len(methods) >= LEAST_CHOSEN else [],
        "quiet": LIGHT["quiet"],
        "parts": chart_sections(survey),
        **dict.fromkeys(OPTIONAL, ()),
        **(_settings_values(survey) if survey.has_settings else _study_values(survey)),
    }


def _settings_values(survey: SettingsStudy) -> dict[str, Any]:
    tables, metric, point = score_tables(survey), survey.first_study.metric, POINT_NAMES[survey.first_study.point]
    note = sentence(settings_note(survey, tables))
    return {
        "kind": "compare",
        "title": f"{plural(len(survey.labels), 'method')} in {plural(len(survey.settings), 'setting')}",
        "boards": tables,
        "boards_intro": f"Test {metric.title} {point}, last round. {note}.",
        "links": {setting.name: f"{setting.path}/report.html" for setting in survey.settings},
        "config": yaml.safe_dump(survey.file.config, sort_keys=False),
        "warnings": footer.settings_warnings(survey) + footer.settings_doubts(survey),
    }


def _study_values(survey: SettingsStudy) -> dict[str, Any]:
    study, rows = survey.first_study, survey.rows
    alike = study.plan.subject is None
    boards = score_tables(survey) if rows or has_failed_methods(survey) else []
    legend = f" {'; '.join(boards[0].notes)}." if boards else ""
    title = f"{len(study.plan.labels())} methods" if alike else study.method
    return {
        "kind": study.plan.kind,
        "title": f"{title} on {(study.config.get('data') or {}).get('name', study.folder.name)}",
        "tiles": [] if rows or alike else headline.answer_tiles(study),
        "boards": boards,
        "boards_intro": f"Test {study.metric.title} at the last round,{point_suffix(study, rows)}.{legend}",
        "costs": cost_table(rows) if rows else None,
        "final": with_lines(scores.final(study)),
        "groups": scores.of_groups(study),
        "tested": client_evidence(study),
        "newcomers": with_lines(scores.of_newcomers(study)),
        "differences": footer.changed_settings(study.config),
        "config": yaml.safe_dump(study.config, sort_keys=False) if study.config else "",
        "environment": footer.environment_facts(study),
        "warnings": footer.study_warnings(study),
        "failed": footer.failure_lines(study),
        "decisions": footer.decision_groups(study),
        "data": footer.what_was_read(study),
    }


def with_lines(table: Table) -> list[Table]:
    return [table] if table.lines else []


def chart_sections(survey: SettingsStudy) -> list[ChartSection]:
    """The sections that have figures."""
    study = survey.first_study
    sections = settings_sections(survey) if survey.has_settings else study_sections(study, survey.rows)
    return [section for section in sections if section.charts]
