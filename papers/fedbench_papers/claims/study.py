"""Tests of papers' claims: runs, judges and records them row by row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.jobs import folder_locks
from fedbench.results.contrasts import holm
from fedbench.results.files import read_json
from fedbench.results.plan import Plan, is_study
from fedbench.results.reader import Records
from fedbench.studies.cost import total_cost
from fedbench.studies.run_studies import StudyWatch, run_studies
from fedbench.studies.space import Values
from fedbench.studies.study_result import StudyResult
from fedbench.studies.tuning_study import TuningStudy
from fedbench_papers import TUNE_SEEDS
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.claims.judge import PartVerdict, judge_row
from fedbench_papers.claims.page import write_claims
from fedbench_papers.claims.readings import RECORD_POINTS, Frames, accuracy
from fedbench_papers.claims.record import CLAIMS_FILE, RECORDED, ClaimsRecord
from fedbench_papers.claims.rows import SETTINGS, Row, load_file, load_rows, new_runs, select_rows
from fedbench_papers.claims.verdicts import of_seeds
from fedbench_papers.claims.words import corrected_verdict, families

CLAIMS_KIND = "claims"
NOT_RUN = "not run yet"
ABOUT = ("id", "statement", "where", "effect", "setting", "far", "attempts", "reading", "reading_of")
"""The texts of a row that its entry repeats."""


class Claims(StudyResult):
    """The claims tested so far. `table` has a row per part of a claim."""

    file = "claims.csv"

    def __str__(self) -> str:
        return f"{self.table.to_string(index=False)}\n\nreport: {self.report}"


def claims(
    only: Sequence[str] = ("all",),
    *,
    sources: Mapping[str, str] | None = None,
    out: Path | str | None = None,
    keys: Values | None = None,
    conditions: Conditions | None = None,
    trials: int | None = None,
    watch: StudyWatch | None = None,
    on_row: Callable[[str], None] = lambda name: None,
    readings: str = "",
) -> Claims:
    """Executes the missing runs of rows, judges the rows, and rewrites table and page after each.

    only: ids, or `all` that count. readings: `all` for other readings of these rows, too. sources: of the sets, by name
    (`rows.DATA`). out: the results folder, in whose `claims` each row has a folder. keys: set for every run.
    conditions: other than the rows' own; their results have their own folder. on_row: called with the id of each row
    before its runs, also of one that another uses. Raises ConfigError before a row's first run, and before all rows if
    data are missing.
    """
    conditions = conditions or Conditions()
    rows = load_rows(sources, keys, conditions)
    chosen = select_rows(rows, only, readings)
    folder = Path(out or "results").absolute() / conditions.folder
    check_record(folder, conditions)
    check_data([rows[name] for row in chosen for name in (*row.uses, row.id)])
    for row in chosen:
        if not row.reason:
            for name in [*(name for name in row.uses if not is_finished(folder / name)), row.id]:
                on_row(name)
                run_row(rows[name], folder, trials, watch)
        write_entries(folder, rows, {row.id: row_entry(row, folder)}, conditions)
    return Claims(folder)


def check_data(rows: Sequence[Row]) -> None:
    """Finds or downloads the data of all rows. Raises ConfigError."""
    configs = [arm.config(Config()).data for row in rows if not row.reason for arm in row.arms]
    for data in {str(data): data for data in configs}.values():
        Dataset.load(data)


def run_row(row: Row, parent: Path, trials: int | None, watch: StudyWatch | None) -> None:
    """Runs the arms of a row in a folder of its own within the claims' folder. Raises ConfigError."""
    if not row.arms:
        return
    folder = parent / row.id
    plan = Plan(CLAIMS_KIND, None, row.arms[0].config(Config()).model_dump(mode="json"), [])
    study = TuningStudy(
        plan, Config(seeds=list(row.seeds)), row.arms, folder, parent.parent, TUNE_SEEDS, listed_only=True
    )
    run_studies([study], trials, watch)


def is_finished(folder: Path) -> bool:
    """Whether every run of a row exists."""
    return is_study(folder) and all(entry.status == "done" for entry in Plan.read(folder).entries)


@dataclass(frozen=True)
class RowRuns:
    """The records of a row's runs, with those of rows that it uses under `ROW LABEL`."""

    row: Row
    plans: Mapping[str, Plan]
    folder: Path

    @classmethod
    def of(cls, row: Row, folder: Path) -> "RowRuns":
        """Raises ConfigError if a row that it needs was never run."""
        names = [*row.uses, *([row.id] if row.arms else [])]
        return cls(row, {name: Plan.read(folder / name) for name in names}, folder)

    def label(self, name: str, label: str) -> str:
        return label if name == self.row.id else f"{name} {label}"

    def frames(self, only: int | None = None) -> dict[str, Frames]:
        """The records by label, on the seeds of the verdict or the choosing one."""
        frames = {}
        for name, plan in self.plans.items():
            records = plan.records(self.folder / name)
            for label, left in records.items():
                seeds = [s for s in left.seeds() if s not in TUNE_SEEDS] if only is None else [only]
                frames[self.label(name, label)] = Frames(left, seeds)
        return frames

    def pick(self, labels: Sequence[str]) -> str:
        """The best label on the choosing seed: by runs on it, or by the points tried on it."""
        if self.row.choose is not None:
            return max(labels, key=lambda label: of_seeds(accuracy(self.choosing_runs[label], "agg")).mean)
        return max(labels, key=lambda label: self.best_validation.get(label, float("-inf")))

    @cached_property
    def choosing_runs(self) -> dict[str, Frames]:
        """The records of runs on the choosing seed."""
        return self.frames(self.row.choose)

    @cached_property
    def best_validation(self) -> dict[str, float]:
        """The best validation score of every tuned label."""
        points = {
            self.label(name, label): [entry.scores.get("val") for entry in plan.points(label)]
            for name, plan in self.plans.items()
            for label in plan.labels()
        }
        return {label: max(s for s in scores if s is not None) for label, scores in points.items() if any(scores)}

    def runs(self) -> list[Path]:
        """The folders of the row's own runs, including candidates, each once."""
        plan = self.plans.get(self.row.id)
        here = self.folder / self.row.id
        return list(dict.fromkeys(here / entry.path for entry in (plan.entries if plan else [])))

    def missing(self) -> list[str]:
        """The missing runs, with reasons."""
        return [
            f"{self.label(name, entry.label)} seed {entry.seed}: {entry.error or entry.status}"
            for name, plan in self.plans.items()
            for entry in plan.entries
            if entry.status != "done"
        ]


def row_entry(row: Row, folder: Path) -> dict[str, Any]:
    """A row of the table, with its parts."""
    if row.reason:
        return {"status": row.reason, "parts": []}
    runs = RowRuns.of(row, folder)
    missing = runs.missing()
    parts = [] if missing else judge_row(row.parts, runs.frames(), runs.pick)
    return {
        "status": f"failed: {'; '.join(missing)}" if missing else "judged",
        "made": date.today().isoformat(),
        "parts": [part_tree(part) for part in parts],
        "minutes": sum(map(seconds_of, runs.runs())) / 60,
        "runs": len(runs.runs()),
        "fingerprint": partition_fingerprint(runs),
        "levels": levels(runs),
        "choices": {name: plan.choices for name, plan in runs.plans.items() if any(plan.choices.values())},
    }


def part_tree(part: PartVerdict) -> dict[str, Any]:
    verdict, estimate = part.verdict, part.verdict.estimate
    return {
        **{key: getattr(part, key) for key in ("part", "case", "rule", "point", "delta", "judged", "other", "best")},
        "verdict": verdict.word,
        "p": verdict.p,
        "p_fails": verdict.p_fails,
        "note": verdict.note,
        **{key: getattr(estimate, key, None) for key in ("mean", "low", "high")},
        "values": list(estimate.values) if estimate else [],
    }


def seconds_of(run: Path) -> float:
    return float(Records(run).timings()["total"].sum()) if (run / "timings.jsonl").exists() else 0.0


def partition_fingerprint(runs: RowRuns) -> str:
    """Eight hexadecimal digits for the data rows of every client and seed."""
    prints = {
        str(read_json(run / "environment.json", []).get("partition_fingerprint"))
        for name, plan in runs.plans.items()
        for run in (runs.folder / name / entry.path for entry in plan.entries)
    }
    return sha256("".join(sorted(prints)).encode()).hexdigest()[:8]


def levels(row_runs: RowRuns) -> dict[str, dict[str, float]]:
    """Mean accuracy of the row's own arms at both points, in points; gradient steps per client and round."""
    return {
        label: {
            **{point: of_seeds(accuracy(runs, point)).mean for point in RECORD_POINTS},
            "steps": round(runs.records.summary().get("steps") or 0.0, 2),
        }
        for label, runs in row_runs.frames().items()
        if label in row_runs.row.arm_keys
    }


def write_entries(
    folder: Path, rows: Mapping[str, Row], new: Mapping[str, Mapping[str, Any]], conditions: Conditions
) -> None:
    """Adds the results to claims.json and rewrites the table and the page."""
    with folder_locks.locked_folder(folder):
        table = table_of(rows, {**read_entries(folder), **new}, conditions)
        ClaimsRecord.of(table, conditions).write(folder / CLAIMS_FILE)
        write_claims(folder)


def read_entries(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The stored results of rows, by id."""
    file = folder / CLAIMS_FILE
    return ClaimsRecord.read(file).entries if file.exists() else {}


def check_record(folder: Path, conditions: Conditions) -> None:
    """Raises ConfigError if the folder has results under other conditions, which a file copied there may have."""
    file = folder / CLAIMS_FILE
    if file.exists() and (other := ClaimsRecord.read(file).conditions) != conditions:
        raise ConfigError(f"{file}: has results under other conditions ({other.words}); move it to {other.folder}")


def table_of(
    rows: Mapping[str, Row], entries: Mapping[str, Mapping[str, Any]], conditions: Conditions
) -> list[dict[str, Any]]:
    """Every row in order, with p values adjusted over all parts that were tested, apart for other readings."""
    table, changed = [], "" if conditions == Conditions() else f"; here {conditions.words}"
    for name, row in rows.items():
        known = entries.get(name) or {"status": row.reason or NOT_RUN, "parts": []}
        about = {key: getattr(row, key) for key in ABOUT}
        about |= {key: list(getattr(row, key)) for key in ("seeds", "uses", "open")}
        about |= {"combination": dict(row.combination)}
        about |= {"arms": dict(row.arm_keys), "setting_text": load_file(SETTINGS)[row.setting]["text"] + changed}
        table.append({**known, **about, "command": f"fedbench claims --only {name}{conditions.flags}"})
    for family in families(table):
        adjust_p_values([(part, row["attempts"]) for row in family for part in row["parts"]])
    return table


def adjust_p_values(parts: Sequence[tuple[dict[str, Any], int]]) -> None:
    """Adjusts the p values of what counts by Holm: those for the claims, and those against them, each among themselves.

    parts: each with its attempts, by whose number p is multiplied before: any of them could have given a verdict.
    """
    for key in ("p", "p_fails"):
        tested = [(part, attempts) for part, attempts in parts if part["judged"] and part.get(key) is not None]
        values = holm([min(1.0, part[key] * attempts) for part, attempts in tested])
        for part, _ in parts:
            part[f"{key}_adjusted"] = None
        for (part, _), value in zip(tested, values, strict=True):
            part[f"{key}_adjusted"] = value


def rows_table(
    sources: Mapping[str, str] | None = None, out: Path | str | None = None, conditions: Conditions | None = None
) -> pd.DataFrame:
    """Every row with its cost beyond the rows before it, and its verdict so far.

    Columns: id, statement, effect, reading and reading_of (of rows that do not count, whose cost is that beyond all
    that count), combined (whether the reading is a combination of options), runs, steps, minutes (estimated), verdict,
    made (its date), recorded (whether it is the one of the package, shown where there is none of one's own under the
    same conditions).
    """
    conditions = conditions or Conditions()
    rows, known, lines = load_rows(sources, conditions=conditions), set[tuple[str, int]](), []
    local = results_of(read_entries(Path(out or "results").absolute() / conditions.folder))
    recorded = ClaimsRecord.read(RECORDED)
    shipped = results_of(recorded.entries) if recorded.conditions == conditions else {}
    new = {name: new_runs(rows[name], known) for name in sorted(rows, key=lambda name: bool(rows[name].reading_of))}
    for name, row in rows.items():
        steps, hours = total_cost(new[name])
        entry = local.get(name) or shipped.get(name)
        costs = dict(runs=len(new[name]), steps=steps, minutes=60 * hours)
        verdict = verdict_line(entry) if entry else row.reason or NOT_RUN
        outcome = dict(verdict=verdict, made=(entry or {}).get("made", ""), recorded=bool(entry) and name not in local)
        about = {key: getattr(row, key) for key in ("id", "statement", "effect", "reading", "reading_of")}
        about["combined"] = bool(row.reading_of and row.combination)
        lines.append({**about, **costs, **outcome})
    return pd.DataFrame(lines)


def results_of(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The entries of rows that were run."""
    return {name: entry for name, entry in entries.items() if entry["status"] != NOT_RUN}


def verdict_line(entry: Mapping[str, Any]) -> str:
    """The verdicts of a row in a line."""
    words = [f"{part['part']}: {corrected_verdict(part)}" for part in entry["parts"] if part["judged"]]
    return "; ".join(words) or str(entry["status"])
