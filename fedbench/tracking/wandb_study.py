"""Uploads a study to W&B: its seeds' runs from their records, and a run for its report and final table."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import wandb

from fedbench.config import Config, WandbConfig
from fedbench.config.files import load_yaml
from fedbench.plugins import PAGES
from fedbench.results.logged import (
    CumulativeCosts,
    Warn,
    curve_rows,
    metric_values,
    rows_by_round,
    trace_distributions,
    trace_values,
)
from fedbench.results.plan import Entry, Plan, is_study, study_name
from fedbench.results.reader import Records, is_run
from fedbench.results.tables import TABLE_COLUMNS, FinalScores, final_table
from fedbench.tracking.wandb_log import (
    LONGEST,
    WandbLog,
    group_of,
    last_round,
    name_prefix,
    offline_parts,
    plain_name,
    remove_parts,
    run_arguments,
    run_tags,
    start_run,
    wandb_table,
)

PAGE = (
    "report.html",
    "table.csv",
    "table.md",
    "table.tex",
    "groups.csv",
    "plan.json",
    "matrix.json",
)
"""Files of a study that are uploaded as an artifact, if they exist, as are those of other packages' studies."""
ROLE = "study"


@dataclass(frozen=True)
class FinishedSeed:
    """A finished job of a study. config: the job's, with the study's W&B settings."""

    entry: Entry
    folder: Path
    config: Config

    @cached_property
    def records(self) -> Records:
        return Records(self.folder)

    @cached_property
    def rounds(self) -> list[int]:
        """The evaluated rounds."""
        return sorted(map(int, self.records.metrics()["round"].unique()))

    def sent_offline(self) -> bool:
        """Whether offline files hold all of it."""
        return (last_round(self.offline_parts()) or 0) >= self.rounds[-1]

    def offline_parts(self) -> list[Path]:
        """The folders of offline files, oldest first."""
        return offline_parts(self.folder, run_arguments(self.config, self.entry)["id"])


@dataclass(frozen=True)
class WandbStudy:
    """A study and its place in W&B."""

    folder: Path
    plan: Plan
    place: WandbConfig

    @classmethod
    def load(cls, folder: Path, given: Mapping[str, Any] | None = None) -> "WandbStudy":
        """given: keys of `WandbConfig` that override the study's own. Raises ConfigError if there is no study."""
        plan = Plan.read(folder)
        place = WandbConfig(**{**(plan.config.get("wandb") or {}), **(given or {})})
        if place.group is None and plan.kind != "run":
            place.group = study_name(folder)
        return cls(folder, plan, place)

    @property
    def name(self) -> str:
        return study_name(self.folder)

    @cached_property
    def config(self) -> Config:
        """The configuration of the plan."""
        return with_place(self.plan.config, self.place)

    @property
    def group(self) -> str:
        return group_of(self.config)

    @cached_property
    def seeds(self) -> list[FinishedSeed]:
        """The finished jobs, final ones first."""
        seeds = {}
        for entry in sorted(self.plan.entries, key=lambda entry: entry.role, reverse=True):
            path = self.folder / entry.path
            if (path / "summary.json").exists() and Records(path).summary().get("complete"):
                config = with_place(load_yaml(path / "config.yaml"), self.place)
                seed = FinishedSeed(entry, path, config)
                seeds[run_arguments(config, entry)["id"]] = seed
        return list(seeds.values())

    def left_out(self) -> dict[str, str]:
        """Unfinished jobs, and why."""
        known = {(seed.entry.label, seed.entry.path) for seed in self.seeds}
        left = [entry for entry in self.plan.entries if (entry.label, entry.path) not in known]
        return {
            f"{entry.label} seed {entry.seed} ({entry.path})": entry.error
            or ("not finished" if (self.folder / entry.path).exists() else "its folder is missing")
            for entry in left
        }

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per method, point and choice of round."""
        runs = self.plan.records(self.folder)
        if not runs:
            return pd.DataFrame(columns=TABLE_COLUMNS)
        metric = next(iter(runs.values())).metric()
        metrics = {label: run.metrics() for label, run in runs.items()}
        clients = {label: run.clients() for label, run in runs.items()}
        outcomes = {label: run.outcomes() for label, run in runs.items()}
        kinds = {label: run.estimator() for label, run in runs.items()}
        return final_table(FinalScores.of(metric, metrics, clients, outcomes), kinds)


def with_place(tree: Mapping[str, Any], place: WandbConfig) -> Config:
    """A configuration with other W&B settings."""
    return Config(**{**tree, "wandb": place.model_dump()})


def send(seed: FinishedSeed) -> int:
    """Uploads the missing rounds of a job and returns their number. Raises ConfigError without W&B."""
    log = WandbLog(seed.config, seed.folder, seed.entry, None)
    have, sent, spent = log.logged(), 0, CumulativeCosts()
    log.log_hyperparams(seed.config.model_dump(mode="json"))
    rows: list[Any] = seed.records.metrics().to_dict("records")
    traces = rows_by_round(curve_rows(seed.records))
    for number, lines in rows_by_round(rows).items():
        spent.note(number, lines)
        if have is None or number > have:
            curves = trace_values(traces[number]) | trace_distributions(traces[number])
            log.log_metrics(metric_values(lines) | spent.until(number) | curves, step=number)
            sent += 1
    log.conclude(seed.records)
    log.finalize("success")
    return sent


def send_study(study: WandbStudy, warn: Warn | None = None) -> Any:
    """Uploads the final table and the report of a study as a run in its group, and returns that run.

    warn: as in `started`.
    """
    config = study.config
    more = {
        "group": study.group,
        "tags": run_tags(config.wandb.tags, config.data.name, config.partition.name, ROLE),
        "config": {**study.plan.config, "kind": study.plan.kind, "choices": study.plan.choices},
    }
    return _send_page(study.folder, study.place, study.table, more, warn)


def is_overview(folder: Path) -> bool:
    """Whether the folder holds a study whose parts are studies, such as one over settings: a table and no plan."""
    return (folder / "table.csv").exists() and not (is_study(folder) or is_run(folder))


def send_overview(folder: Path, place: WandbConfig, warn: Warn | None = None) -> Any:
    """Uploads the table and the report over the parts of a study; each part is uploaded as its own study."""
    more = {"group": plain_name(place.group or study_name(folder))[:LONGEST], "tags": run_tags(place.tags, ROLE)}
    return _send_page(folder, place, pd.read_csv(folder / "table.csv"), more, warn)


def _send_page(folder: Path, place: WandbConfig, rows: pd.DataFrame, more: dict[str, Any], warn: Warn | None) -> Any:
    name = study_name(folder)
    digest = sha256(f"{more['group']}/{name}".encode()).hexdigest()[:12]
    before = offline_parts(folder, f"{ROLE}-{digest}")
    title = " ".join([*name_prefix(place), name])[-LONGEST:]
    run = start_run(place, folder, {"id": f"{ROLE}-{digest}", "job_type": ROLE, "name": title, **more}, warn)
    run.summary["final_table"] = wandb_table(rows)
    artifact = wandb.Artifact(f"page-{digest}", "report", description=f"page and tables of {name}")
    for file in (*PAGE, *PAGES.names()):
        if (folder / file).exists():
            artifact.add_file(str(folder / file), name=file)
    run.log_artifact(artifact)
    run.finish()
    remove_parts(before)  # all of it is in the new one
    return run
