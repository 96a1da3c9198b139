"""The data of a report: the runs of a study by method, read once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench import tasks
from fedbench.report.theme import colour_of, dash_of
from fedbench.results.curves import cost_so_far, seed_curve
from fedbench.results.estimators import estimator_remark
from fedbench.results.groups import group_table
from fedbench.results.newcomers import newcomer_table
from fedbench.results.plan import Plan
from fedbench.results.reader import Records
from fedbench.results.rounds import at_last_round
from fedbench.results.sequential_test import SequentialTest, sequential_test_of
from fedbench.results.summary import summarise
from fedbench.results.tables import FinalScores, final_table
from fedbench.results.trace import Trace
from fedbench.tasks import Metric

POINT_NAMES = {"after_fit": "after local training", "after_agg": "after aggregation", "global": "global model"}


@dataclass
class Study:
    """A plan and the results of its final jobs by label. first: methods that get a colour first."""

    folder: Path
    plan: Plan
    runs: dict[str, Records]
    first: Sequence[str] = ()

    @classmethod
    def load(cls, folder: Path, first: Sequence[str] = ()) -> "Study":
        """Reads a folder. Raises ConfigError if it holds neither a study nor a run, or if its plan is damaged."""
        plan = Plan.read(folder)
        return cls(folder, plan, plan.records(folder), first)

    @cached_property
    def method(self) -> str:
        """The study's subject, or the best method if there is none."""
        if self.plan.subject is not None:
            return self.plan.subject
        return next(iter([*self.ordered, *self.plan.labels()]), "")

    def final_score(self, label: str, point: str | None = None) -> float:
        """Mean test score over seeds at the last round."""
        return float(self.last_rows(label, point)[self.test].mean())

    @cached_property
    def metric(self) -> Metric:
        """The primary metric."""
        return next(iter(self.runs.values())).metric() if self.runs else tasks.load("classification").primary

    @property
    def test(self) -> str:
        """The metric's test column."""
        return f"test_{self.metric.name}"

    @property
    def is_comparison(self) -> bool:
        """Whether there are several methods, or several points of one method."""
        return len(self.plan.labels()) > 1 or bool(self.plan.points())

    @cached_property
    def metrics(self) -> dict[str, pd.DataFrame]:
        frames = {method: run.metrics() for method, run in self.runs.items()}
        return {method: frame for method, frame in frames.items() if frame[self.test].notna().any()}

    @cached_property
    def clients(self) -> dict[str, pd.DataFrame]:
        return {method: self.runs[method].clients() for method in self.metrics}

    @cached_property
    def table(self) -> pd.DataFrame:
        return final_table(self.scores, self.estimators)

    @cached_property
    def scores(self) -> FinalScores:
        outcomes = {method: self.runs[method].outcomes() for method in self.metrics}
        return FinalScores.of(self.metric, self.metrics, self.clients, outcomes)

    @cached_property
    def sequential_test(self) -> SequentialTest | None:
        """The state of a comparison that adds seeds until it is decided."""
        return None if self.plan.stopping_rule is None else sequential_test_of(self.plan, self.scores)

    @cached_property
    def curves(self) -> dict[tuple[str, str], pd.DataFrame]:
        """By method and point, the test score over rounds."""
        frames = self.metrics.items()
        return {(method, p): seed_curve(self.metric, frame, p) for method, frame in frames for p in POINT_NAMES}

    @cached_property
    def costs(self) -> dict[str, pd.DataFrame]:
        """By method, what a client has spent so far, mean over clients, beside the score at the study's point."""
        return {
            method: cost_so_far(self.runs[method], self.curves[method, self.point], method in self.plan.references)
            for method in self.metrics
        }

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Scores per class and domain, if recorded."""
        groups = {method: self.runs[method].groups() for method in self.metrics}
        names = next(iter(self.runs.values())).output_names if self.runs else []
        return group_table(self.metric, self.metrics, groups, names)

    @cached_property
    def newcomers(self) -> pd.DataFrame:
        """Scores of the clients that joined after the last round, if any."""
        return newcomer_table(self.metric, {method: self.runs[method].newcomers() for method in self.ordered})

    @cached_property
    def estimators(self) -> dict[str, str]:
        """By method, the units that a client's score is a mean over: samples, or batches."""
        return {method: self.runs[method].estimator() for method in self.metrics}

    @property
    def remark(self) -> str:
        """The remark about the estimators, if any."""
        return estimator_remark(self.metric, [*self.estimators.values()])

    @cached_property
    def traces(self) -> pd.DataFrame:
        """The subject's traces."""
        run = self.records
        return (
            run.traces().dropna(subset=["value"]) if run else pd.DataFrame(columns=["seed", "round", "client", "name"])
        )

    @cached_property
    def trace_charts(self) -> dict[str, Trace]:
        """The charts that the subject declares for its traces, by name."""
        return self.records.declared_traces() if self.records else {}

    @cached_property
    def partition(self) -> dict[str, Any]:
        """The first partition in the runs; all runs of a study share it."""
        return next((dealt for run in self.runs.values() if (dealt := run.partition())), {})

    @cached_property
    def config(self) -> dict[str, Any]:
        """The subject's resolved configuration, or the plan's."""
        return (self.records.config() if self.records else {}) or self.plan.config

    @cached_property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """Summaries by method, recomputed, with the warnings recorded by the run; scores of the subject only."""
        plan = self.plan
        return {
            label: summarise(run, run.warnings(), label == plan.subject, pooled=label in plan.references)
            for label, run in self.runs.items()
        }

    @property
    def records(self) -> Records | None:
        return self.runs.get(self.method)

    @property
    def point(self) -> str:
        """The evaluation point of the answer."""
        return self.plan.point

    @property
    def flipped_clients(self) -> list[int]:
        """Clients with permuted labels."""
        return list((self.config.get("partition") or {}).get("flip_clients") or [])

    @cached_property
    def ordered(self) -> list[str]:
        """Evaluated methods; if there is no subject, best first and references last."""
        if self.plan.subject is not None:
            return list(self.metrics)
        known = [label for label in self.metrics if len(self.last_rows(label))]
        sign = -1 if self.metric.higher else 1
        return sorted(known, key=lambda label: (label in self.plan.references, sign * self.final_score(label)))

    @cached_property
    def colours(self) -> dict[str, str]:
        return colour_of([*dict.fromkeys([*self.first, *self.ordered, *self.runs])], self.method)

    @cached_property
    def dashes(self) -> dict[str, str]:
        """The dash of each method's lines."""
        return {label: dash_of(label, self.plan.references) for label in self.colours}

    @property
    def problems(self) -> list[str]:
        """Files that could not be read, and what to do; complete only after all else has been read."""
        return list(dict.fromkeys(line for run in self.runs.values() for line in run.remedies))

    def failed_seeds(self, label: str) -> list[int]:
        """Seeds whose final run failed or whose score at the last evaluated round is not finite."""
        failed = {entry.seed for entry in self.plan.final(label) if entry.status == "failed"}
        return sorted(failed | set(self.diverged_seeds(label)))

    def diverged_seeds(self, label: str) -> list[int]:
        """Seeds without a finite score at the last evaluated round of the study's point."""
        return self._diverged_seeds.get(label, [])

    @cached_property
    def _diverged_seeds(self) -> dict[str, list[int]]:
        frames = {label: run.metrics() for label, run in self.runs.items()}
        at_point = {label: frame[frame["point"] == self.point] for label, frame in frames.items()}
        return {
            label: sorted(set(frame["seed"]) - set(at_last_round(frame, self.metric)["seed"]))
            for label, frame in at_point.items()
        }

    @cached_property
    def failures(self) -> dict[str, str]:
        """Reasons why methods have no score: all final runs or all candidates failed."""
        plan = self.plan
        unchosen = [entry.label for entry in plan.entries if plan.choices and entry.label not in plan.choices]
        final = {label: {entry.seed for entry in plan.final(label)} for label in plan.labels()}
        over = [label for label, seeds in final.items() if seeds <= set(self.failed_seeds(label))]
        scored = {label for label in self.metrics if len(self.last_rows(label))}
        return {label: self.reason(label) for label in dict.fromkeys([*over, *unchosen]) if label not in scored}

    @property
    def failed_methods(self) -> list[str]:
        """The failed methods that are not references."""
        return [label for label in self.failures if label not in self.plan.references]

    def reason(self, label: str) -> str:
        """Why the first failed run of a method failed, a final one if there is any, or ""."""
        failed = sorted(self.plan.failed(), key=lambda entry: entry.role != "final")
        errors = [entry.error or "no reason recorded" for entry in failed if entry.label == label]
        diverged = [f"no finite test {self.metric.label} at the last evaluated round"] * bool(
            self.diverged_seeds(label)
        )
        return next(iter([*errors, *diverged]), "")

    def last_rows(self, method: str, point: str | None = None) -> pd.DataFrame:
        """Per seed the metrics row of the last evaluated round at a point (default: the study's)."""
        return self._last_rows[method, point or self.point]

    @cached_property
    def _last_rows(self) -> dict[tuple[str, str], pd.DataFrame]:
        """Rows of the last evaluated round by method and point."""
        whole = {method: at_last_round(frame, self.metric) for method, frame in self.metrics.items()}
        return {
            (method, point): frame[frame["point"] == point].reset_index(drop=True)
            for method, frame in whole.items()
            for point in {*POINT_NAMES, self.point}
        }
