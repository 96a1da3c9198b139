"""What one page is about: the runs of a study by method, read once."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench import tasks
from fedbench.report.theme import colour_of
from fedbench.results.estimators import estimator_remark
from fedbench.results.groups import group_table
from fedbench.results.plan import Plan
from fedbench.results.reader import Records, at_last_round
from fedbench.results.summary import summarise
from fedbench.results.tables import REFERENCES, final_table
from fedbench.tasks import Metric

POINT_NAMES = {"after_fit": "after local training", "after_agg": "after aggregation", "global": "global model"}


@dataclass
class Study:
    """A plan, and what its final jobs left by label."""

    folder: Path
    plan: Plan
    runs: dict[str, Records]

    @classmethod
    def load(cls, folder: Path) -> "Study":
        """Reads a folder. Raises ConfigError when it holds neither a study nor a run, and where its plan is damaged."""
        plan = Plan.read(folder)
        return cls(folder, plan, plan.records(folder))

    @cached_property
    def method(self) -> str:
        """The one that the study is about; where it is about all alike, the one that came out best."""
        if self.plan.subject is not None:
            return self.plan.subject
        return next(iter([*self.ordered, *self.plan.labels()]), "")

    def reached(self, label: str, point: str | None = None) -> float:
        """Mean over seeds of the test score at the last round."""
        return float(self.last(label, point)[self.test].mean())

    @cached_property
    def metric(self) -> Metric:
        """The one that everything goes by."""
        return next(iter(self.runs.values())).metric() if self.runs else tasks.load("classification").primary

    @property
    def test(self) -> str:
        """Its column on the test split."""
        return f"test_{self.metric.name}"

    @property
    def compared(self) -> bool:
        """Whether there is more than one method, or a choice between points of one."""
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
        return final_table(self.metric, self.metrics, self.clients, estimators=self.estimators)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Scores of single classes and domains, where some were recorded."""
        return group_table(self.metric, self.metrics, {method: self.runs[method].groups() for method in self.metrics})

    @cached_property
    def estimators(self) -> dict[str, str]:
        """What a client's score is a mean over, by method."""
        return {method: self.runs[method].estimator() for method in self.metrics}

    @property
    def remark(self) -> str:
        """What is to be said of them, if anything."""
        return estimator_remark(self.metric, [*self.estimators.values()])

    @cached_property
    def traces(self) -> pd.DataFrame:
        """The own method's traces."""
        run = self.own
        return (
            run.traces().dropna(subset=["value"]) if run else pd.DataFrame(columns=["seed", "round", "client", "name"])
        )

    @cached_property
    def partition(self) -> dict[str, Any]:
        """The first partition that a run left; all runs of a study share it."""
        return next((found for run in self.runs.values() if (found := run.partition())), {})

    @cached_property
    def config(self) -> dict[str, Any]:
        """The subject's resolved configuration, or what was asked."""
        return (self.own.config() if self.own else {}) or self.plan.config

    @cached_property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """Per method: derived anew, with the warnings that the run itself left."""
        return {m: summarise(run, run.warnings()) for m, run in self.runs.items()}

    @property
    def own(self) -> Records | None:
        return self.runs.get(self.method)

    @property
    def point(self) -> str:
        """The evaluation point that the answer is about."""
        return self.plan.point

    @property
    def flipped(self) -> list[int]:
        """Clients with permuted labels."""
        return list((self.config.get("partition") or {}).get("flip_clients") or [])

    @cached_property
    def ordered(self) -> list[str]:
        """Evaluated methods; those of a study about all alike from the best to the worst, references at the end."""
        if self.plan.subject is not None:
            return list(self.metrics)
        known = [label for label in self.metrics if len(self.last(label))]
        sign = -1 if self.metric.higher else 1
        return sorted(known, key=lambda label: (label in REFERENCES, sign * self.reached(label)))

    @property
    def colours(self) -> dict[str, str]:
        return colour_of([*dict.fromkeys([*self.ordered, *self.runs])], self.method)

    @property
    def problems(self) -> list[str]:
        """What could not be read, each once; complete only after everything else was asked for."""
        named = [(run.path.name, problem) for run in self.runs.values() for problem in run.problems]
        return list(dict.fromkeys(f"{name}/{problem}" for name, problem in named))

    def failed_seeds(self, label: str) -> list[int]:
        """Seeds whose final run failed, or has no finite score at the last evaluated round."""
        failed = {entry.seed for entry in self.plan.final(label) if entry.status == "failed"}
        return sorted(failed | set(self.diverged(label)))

    def diverged(self, label: str) -> list[int]:
        """Seeds without a finite score at the last evaluated round of the study's point."""
        if label not in self.runs:
            return []
        frame = self.runs[label].metrics()
        frame = frame[frame["point"] == self.point]
        return sorted(set(frame["seed"]) - set(at_last_round(frame, self.metric)["seed"]))

    @cached_property
    def failures(self) -> dict[str, str]:
        """Why methods have no score, and none to come: all final runs failed, or all points that were tried."""
        plan = self.plan
        unchosen = [entry.label for entry in plan.entries if plan.choices and entry.label not in plan.choices]
        final = {label: {entry.seed for entry in plan.final(label)} for label in plan.labels()}
        over = [label for label, seeds in final.items() if seeds <= set(self.failed_seeds(label))]
        scored = {label for label in self.metrics if len(self.last(label))}
        return {label: self.reason(label) for label in dict.fromkeys([*over, *unchosen]) if label not in scored}

    @property
    def lost(self) -> list[str]:
        """Of these, methods that compete."""
        return [label for label in self.failures if label not in REFERENCES]

    def reason(self, label: str) -> str:
        """Why a run of a method failed, the first one that did; "" where none has."""
        errors = [e.error or "no reason recorded" for e in self.plan.failed() if e.label == label]
        diverged = [f"no finite test {self.metric.label} at the last evaluated round"] * bool(self.diverged(label))
        return next(iter([*errors, *diverged]), "")

    def last(self, method: str, point: str | None = None) -> pd.DataFrame:
        """Per seed the metrics row of the last evaluated round at a point (default: the study's)."""
        frame = self.metrics[method]
        return at_last_round(frame[frame["point"] == (point or self.point)], self.metric)
