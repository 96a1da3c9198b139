"""Runs the field: each setting is a comparison in a folder of its own, and its numbers go into the record."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import Resolver, check_run
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
log = logging.getLogger("fedbench")


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
        Raises ConfigError.
        """
        folder = self.folder / name
        config = self.plan.config(name, self.sources, {**self.keys, "out": str(folder)})
        refused = dict(refusals(config, self.methods or names()))
        before = [label for label in Plan.read(folder).labels() if is_plain(label)] if is_study(folder) else []
        asked = [*before, *self.methods] if self.methods else names()
        applicable = [m for m in dict.fromkeys(asked) if m not in refused and m not in BASELINES]
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


def is_plain(label: str) -> bool:
    """Whether a label has no options; that of a variant has, and the variant stays in the record as it is."""
    return " " not in label


def refusals(config: Config, methods: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The methods that cannot run with a configuration, and why."""
    resolver = Resolver()
    for name in methods:
        if name in BASELINES:
            continue
        try:
            run = resolver.resolve(ComparedMethod.parse(name).config(config))
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

    on_setting: called with the name of each setting before its runs. Settings in which no named method applies are left
    out.
    """
    require_distinct([ComparedMethod.parse(method) for method in run.methods])
    configs = {name: run.plan.config(name, run.sources, run.keys) for name in run.settings}
    chosen, why, record = list[str](), "", current_record(run.folder)
    for name, config in configs.items():
        require_same_protocol(record, name, config)
        refused = dict(refusals(config, run.methods)) if run.methods else {}
        if run.methods and len(refused) == len(run.methods):
            why = f"setting {name}: {'; '.join(f'{label}: {reason}' for label, reason in refused.items())}"
            log.warning("left out: %s", why)
        else:
            chosen.append(name)
    if not chosen:
        raise ConfigError(why)
    for name in chosen:
        on_setting(name)
        study, refused = run.comparison(name)
        run_studies([study], trials, watch)
        finished = Study.load(study.folder)
        record = with_comparison(current_record(run.folder), run, name, finished, refused)
        record.write(run.folder / FIELD_FILE)
        write_field(run.folder)
    return FieldResult(run.folder)


def require_same_protocol(record: FieldRecord, name: str, config: Config) -> None:
    """Raises ConfigError if a setting of this name is recorded with other clients, models or rounds."""
    if name not in record.about:
        return
    before, now = Config(**record.about[name]["config"]), config.model_copy(deep=True)
    now.train.engine = before.train.engine
    for section in ("partition", "public", "model", "train", "participation", "rounds"):
        if getattr(before, section) != getattr(now, section):
            raise ConfigError(
                f"setting {name}: is recorded with {section} = {getattr(before, section)}, and the plan has "
                f"{getattr(now, section)}; give it another name, or take another --out"
            )


def with_comparison(
    record: FieldRecord, run: FieldRun, name: str, study: Study, refused: Mapping[str, str]
) -> FieldRecord:
    """A record with the numbers of a finished comparison, or of the methods that it adds to a recorded setting.

    Methods that were added earlier stay. Raises ConfigError where scores are no shares of which more is better.
    """
    if not study.metric.share or not study.metric.higher:
        raise ConfigError(
            f"setting {name}: {study.metric.label}: the field takes accuracies and AUROC, of which more is better"
        )
    facts = run.facts(name)
    numbers, told = measure(name, study, facts["point"]), about(study, facts, refused)
    recorded = record.numbers[record.numbers["setting"] == name]
    known = record.about.get(name, {})
    if run.methods and not set(recorded["method"]) <= set(numbers["method"]):
        own = numbers[numbers["method"].isin(run.labels)]
        others = recorded[~recorded["method"].isin(run.labels)]
        return record.with_methods(name, beside_recorded(others, own, facts["point"]), told)
    if run.methods and known:
        told["refused"] = {**known["refused"], **told["refused"]}
        told["added"] = sorted({*known.get("added", ()), *run.labels})
    after = record.with_setting(name, numbers, told)
    earlier = recorded[recorded["method"].isin({*known.get("added", ())} - {*numbers["method"]})]
    return after.with_methods(name, earlier, {**known, "failed": {}, "date": told["date"]}) if len(earlier) else after


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
