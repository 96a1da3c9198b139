"""Runs the field: each setting is a comparison in a folder of its own, and its numbers go into the record."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import names
from fedbench.report.study import Study
from fedbench.results.plan import Plan, is_study
from fedbench.studies.compare import plan_comparisons
from fedbench.studies.compared_methods import BASELINES, ComparedMethod, require_distinct
from fedbench.studies.run_studies import StudyWatch, run_studies
from fedbench.studies.space import Values
from fedbench.studies.study_result import StudyResult
from fedbench.studies.tuning_study import TuningStudy
from fedbench_papers.field.measures import NEWCOMERS, about, beside_recorded, measure
from fedbench_papers.field.page import write_field
from fedbench_papers.field.plan import FieldPlan, part_of
from fedbench_papers.field.record import FIELD_FILE, RECORDED, FieldRecord

FOLDER = "field"


class FieldResult(StudyResult):
    """The field so far. `table` has a row per number, as field.parquet."""

    file = FIELD_FILE

    @cached_property
    def table(self) -> Any:
        return FieldRecord.read(self.folder / FIELD_FILE).numbers

    def __str__(self) -> str:
        return f"{len(self.table)} numbers in {self.folder / FIELD_FILE}\n\nreport: {self.report}"


@dataclass(frozen=True)
class FieldRun:
    """What is run of the field. methods: those that are added to the recorded ones; none: all that fedbench has."""

    plan: FieldPlan
    only: Sequence[str] = ("all",)
    shard: str = ""
    methods: Sequence[str] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    out: Path | None = None
    keys: Values = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.out or "results").absolute() / FOLDER

    @property
    def labels(self) -> list[str]:
        """The names of the added methods in tables. Raises ConfigError."""
        return [ComparedMethod.parse(method).label for method in self.methods]

    @property
    def settings(self) -> list[str]:
        """Raises ConfigError."""
        chosen = self.plan.choose(self.only)
        return part_of(chosen, self.shard) if self.shard else chosen

    def comparison(self, name: str) -> tuple[TuningStudy, dict[str, str]]:
        """The comparison in a setting, not run yet, and the methods that do not apply there, with the reason.

        Methods that are named, rather than all, are compared beside those that were compared in this folder before.
        Raises ConfigError, also for a method that is named and does not apply.
        """
        folder = self.folder / name
        config = self.plan.config(name, self.sources, {**self.keys, "out": str(folder)})
        before = [label for label in Plan.read(folder).labels() if is_name(label)] if is_study(folder) else []
        asked = list(dict.fromkeys([*before, *self.methods])) if self.methods else names()
        refused = {} if self.methods else dict(refusals(config, asked))
        for method in self.methods:
            for label, why in refusals(config, [method]):
                raise ConfigError(f"setting {name}: {label}: {why}")
        applicable = [method for method in asked if method not in refused and method not in BASELINES]
        studies, _, _ = plan_comparisons(config, applicable, self.plan.comparison_tuning())
        return studies[0], refused

    def facts(self, name: str) -> dict[str, Any]:
        """What the plan says of a setting."""
        setting = self.plan.settings[name]
        words: dict[str, Any] = {
            "title": setting.title,
            "like": setting.like,
            "kind": setting.kind,
            "estimate": setting.hours,
        }
        return {**words, "point": NEWCOMERS if setting.scores == NEWCOMERS else self.plan.comparison_tuning().point}


def is_name(label: str) -> bool:
    """Whether a label is the method's name; a variant's has options too, and stays in the record as it is."""
    return " " not in label


def refusals(config: Config, methods: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The methods that cannot run with a configuration, and why."""
    for name in methods:
        if name in BASELINES:
            continue
        try:
            run = resolve(ComparedMethod.parse(name).config(config))
            check_run(run, [0], lambda line: None)
        except ConfigError as error:
            yield name, str(error)


def run_field(
    run: FieldRun,
    trials: int | None = None,
    watch: StudyWatch | None = None,
    on_setting: Callable[[str], None] = lambda name: None,
) -> FieldResult:
    """Runs what is missing, and rewrites record and page after each setting. Raises ConfigError before the first run.

    on_setting: called with the name of each setting before its runs.
    """
    require_distinct([ComparedMethod.parse(method) for method in run.methods])
    chosen = run.settings
    for name in chosen:
        run.plan.config(name, run.sources, run.keys)
    record = current_record(run.folder)
    for name in chosen:
        on_setting(name)
        study, refused = run.comparison(name)
        run_studies([study], trials, watch)
        record = with_comparison(record, run, name, Study.load(study.folder), refused)
        record.write(run.folder / FIELD_FILE)
        write_field(run.folder)
    return FieldResult(run.folder)


def with_comparison(
    record: FieldRecord, run: FieldRun, name: str, study: Study, refused: Mapping[str, str]
) -> FieldRecord:
    """A record with the numbers of a finished comparison, or of the methods that it adds to a recorded setting.

    Methods that were added earlier stay.
    """
    facts = run.facts(name)
    numbers, told = measure(name, study, facts["point"]), about(study, facts, refused)
    recorded = record.numbers[record.numbers["setting"] == name]
    if not run.methods or set(recorded["method"]) <= set(numbers["method"]):
        added = recorded[recorded["method"].isin(set(record.about.get(name, {}).get("added", ())))]
        earlier = added[~added["method"].isin(set(numbers["method"]))]
        after = record.with_setting(name, numbers, told)
        return after.with_methods(name, earlier, record.about[name]) if len(earlier) else after
    own = numbers[numbers["method"].isin(run.labels)]
    others = recorded[~recorded["method"].isin(run.labels)]
    return record.with_methods(name, beside_recorded(others, own, facts["point"]), told)


def merge_field(folder: Path, others: Sequence[Path]) -> FieldResult:
    """Puts the records of others, files or folders, into that of a folder. Raises ConfigError."""
    records = [FieldRecord.read(path / FIELD_FILE if path.is_dir() else path) for path in others]
    current_record(folder).merged(records).write(folder / FIELD_FILE)
    write_field(folder)
    return FieldResult(folder)


def current_record(folder: Path) -> FieldRecord:
    """The record of a folder; where it has none yet, the one that is shipped."""
    file = folder / FIELD_FILE
    if file.is_file():
        return FieldRecord.read(file)
    return FieldRecord.read(RECORDED) if RECORDED.is_file() else FieldRecord()
