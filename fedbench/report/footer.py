"""The end of a report: what went wrong, which settings and data its runs had, and where they ran."""

from typing import Any

from fedbench.config import Config
from fedbench.config.keys import flat
from fedbench.report import searches
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.report.typeset import join_words
from fedbench.results.quantities import seed_range
from fedbench.results.remarks import as_doubts, beside_row, with_methods

DECISIONS, DATA, TRACES = "decisions", "data", "traces"
"""Keys in environment.json of which other sections are made."""
PLACE_KEYS = ("out", "name", "resources.", "checkpoint.", "loggers", "wandb.")


def changed_settings(config: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Key, value and default of keys that affect the numbers and differ from their default."""
    defaults = flat(Config().model_dump(mode="json"))
    return [
        (key, value, defaults.get(key, "the method's own"))
        for key, value in flat(config).items()
        if not key.startswith(PLACE_KEYS) and defaults.get(key) != value
    ]


def environment_facts(study: Study) -> list[tuple[str, str]]:
    """The environment of the subject's run as pairs of words."""
    environment = study.records.environment() if study.records else {}
    pairs = flat({key: value for key, value in environment.items() if key not in (DECISIONS, DATA, TRACES)}).items()
    return [(key, ", ".join(map(str, v)) if isinstance(v, list) else str(v)) for key, v in pairs if v is not None]


def what_was_read(study: Study) -> dict[str, Any]:
    """How the data were read, and a few samples; empty for runs that have no record of it."""
    return next((data for run in study.runs.values() if (data := run.environment().get(DATA))), {})


def decision_groups(study: Study) -> list[tuple[str, tuple[str, ...]]]:
    """The choices that papers leave open or make differently, grouped by methods with the same list."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for label, run in study.runs.items():
        if lines := run.environment().get(DECISIONS):
            labels.setdefault(tuple(map(str, lines)), []).append(label)
    return [(", ".join(methods), lines) for lines, methods in labels.items()]


def study_warnings(study: Study) -> list[str]:
    """Warnings of the runs, unfinished runs, and unreadable files."""
    lines = with_methods({method: summary["warnings"] for method, summary in study.summaries.items()})
    for method, summary in study.summaries.items():
        if not summary["complete"] and study.runs[method].finished():
            lines.append(
                f"{method}: metrics.jsonl of a finished run ends before the last round; the numbers are those "
                "of the remaining rounds. Restore the file, or delete the folder and run it again."
            )
        elif not summary["complete"]:
            lines.append(f"{method}: this run is not complete; the numbers are preliminary.")
        if seeds := study.diverged_seeds(method):
            what = f"no finite test {study.metric.label} at the last evaluated round"
            lines.append(f"{method}: {what} of {seed_range(seeds)}; tables omit it.")
    return lines + searches.search_notes(study.plan) + study.problems


def failure_lines(study: Study) -> list[str]:
    """Failed points and clients in words."""
    lines = [
        f"{'Candidate' if entry.role == 'candidate' else entry.label} {entry.name} failed: "
        f"{entry.error or 'no reason recorded'}"
        for entry in study.plan.failed()
    ]
    for method, summary in study.summaries.items():
        for seed, number, client, reason in summary["failed"]:
            lines.append(f"{method}: client {client} was left out in round {number} of seed {seed}: {reason}")
    return lines


def settings_warnings(survey: SettingsStudy) -> list[str]:
    """Settings without numbers, and failures in a setting."""
    missing = [s.name for s in survey.file.settings if s.name not in survey.boards]
    lines = [f"{join_words(missing)}: nothing was evaluated yet."] if missing else []
    for name, study in survey.studies.items():
        lines += [f"{name}: {entry.label} {entry.name} failed: {entry.error}" for entry in study.plan.failed()]
        left = [label for label in study.plan.labels() if label not in survey.labels]
        lines += [f"{name}: {join_words(left)}: not evaluated in every setting, so not in the table."] if left else []
    return lines


def settings_doubts(survey: SettingsStudy) -> list[str]:
    """The doubts about the numbers of methods in all settings, each once with its methods."""
    doubts: dict[str, list[str]] = {}
    for study in survey.studies.values():
        for label, summary in study.summaries.items():
            doubts.setdefault(label, []).extend(as_doubts(beside_row(summary["doubts"])))
    return with_methods(doubts)
