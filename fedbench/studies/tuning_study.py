"""A study of methods: each is tuned over its points, then its best point runs over the final seeds."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Literal

from fedbench.config import Config
from fedbench.config.tuning import check_tune_seeds
from fedbench.data.description import Description
from fedbench.data.prepared import PreparedDataset
from fedbench.errors import ConfigError
from fedbench.jobs.gpu_shares import open_to_trial
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import Resolver, with_defaults
from fedbench.results.plan import Entry, EntryRole, Plan, is_study, point_name, study_name
from fedbench.results.sequential_test import sequential_test_of
from fedbench.results.tables import FinalScores
from fedbench.runtime.warnings import config_warnings
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.neighbours import Neighbour, untried_neighbours
from fedbench.studies.search import TriedPoint, propose
from fedbench.studies.space import Space, Values
from fedbench.studies.tuning_remarks import rate_doubts
from fedbench.tasks import Metric
from fedbench.tracking import loggers

log = logging.getLogger("fedbench")

RUNG = 1 / 2
"""Share of the rounds after which the worse half of a method's points stops (benchmarks/tuning_rungs.py)."""
NEIGHBOURS = 2
"""How often a study tries the points next to a method's best one."""


@dataclass
class TuningStudy:
    """A study of compared methods in its folder. root: the results folder below which jobs are kept.

    config: common to all methods. final_val: `data.val` of final runs, if different. setting: distinguishes it from the
    other settings of a comparison. listed_only: it follows a published protocol, so no points are tried beside those
    listed. jobs: of the plan so far. points: by label, the points to try; if points are proposed, those so far. metric:
    by which points are chosen, and description, what was read, are known once the study is checked.
    """

    plan: Plan
    config: Config
    compared: Sequence[ComparedMethod]
    folder: Path
    root: Path
    tune_seeds: Sequence[int]
    final_val: float | None = None
    setting: str = ""
    listed_only: bool = False
    jobs: tuple[Job, ...] = field(default=(), init=False)
    points: dict[str, list[Values]] = field(init=False)
    metric: Metric = field(init=False)
    description: Description | None = field(default=None, init=False)
    resolver: Resolver = field(default_factory=Resolver, init=False)
    _done: dict[tuple[EntryRole, str], Entry] = field(default_factory=dict, init=False)
    _steps: dict[str, list[Callable[[], list[Job]]]] = field(init=False)
    _pooled: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._pooled = {method.label for method in self.compared if method.is_pooled(self.config)}
        self._begin_anew()
        self.plan.tuning_doubts = list(rate_doubts(self.compared))
        self.plan.refused = [[c.label, point_name(point), why] for c in self.compared for point, why in c.refused]
        if any(method.tuned for method in self.compared):
            check_tune_seeds(self.tune_seeds, self.config.seeds)

    def _begin_anew(self) -> None:
        """Without jobs and choices, and with the points that are known before anything is tried."""
        self.jobs, plan = (), self.plan
        plan.choices, plan.beside_best, plan.ends, plan.untried = {}, {}, {}, {}
        self.points = {method.label: list(method.points) for method in self.compared}
        self._steps = {method.label: self._steps_of(method) for method in self.compared if method.tuned}

    def set_engine(self, engine: Literal["loop", "compiled"]) -> None:
        """Sets `train.engine` of all runs."""
        self.config = self.config.model_copy(deep=True)
        self.config.train.engine = engine
        self.plan.config = self.config.model_dump(mode="json")

    def first_job(self) -> Job:
        """The first job, which shows how much room a trial needs."""
        method = self.compared[0]
        return self._job(method, method.points[0], self.config.seeds[0])

    def unused_values(self) -> Iterator[str]:
        """Lines about values that are set and have no effect on some method."""
        for method in self.compared:
            yield from config_warnings(with_defaults(method.config(self.config, self.points[method.label][0])))

    def candidates(self) -> list[Job]:
        """The jobs of the first stage: every point of every method that has a choice, on the first tuning seed.

        They pause if only the better half is to go on. On all seeds where points are proposed one after another.
        """
        return [
            replace(job, pause=self.rung(method, job.config))
            for method in self.compared
            if method.tuned
            for values in self.points[method.label]
            for job in self._trials(method, values, self.tune_seeds if method.samples else self.tune_seeds[:1])
        ]

    def rung(self, method: ComparedMethod, config: Config) -> int | None:
        """The round after which only the better half of a method's points goes on; None if all run to the end.

        The first evaluated one from half of the rounds on. None too where nothing would be saved, where points are
        proposed one after another, and without checkpoints from which they could go on.
        """
        every = config.evaluate.every
        round = every * ceil(config.rounds * RUNG / every)
        stops = self.plan.tune_rounds == "halving" and not method.samples and method.tried_on(1) < method.tries
        return round if stops and config.checkpoint.every != 0 and round + 1 < config.rounds else None

    def further_trials(self) -> list[Job]:
        """The next trials of every method whose trials so far have all ended, or those of one more proposed point."""
        self.plan.entries = [self._entry(job) for job in self.jobs]
        left = {entry.label for entry in self.plan.entries if entry.role == "candidate" and entry.status == "missing"}
        jobs = list[Job]()
        for steps in (steps for label, steps in self._steps.items() if label not in left):
            trials = list[Job]()
            while steps and not trials:
                trials = steps.pop(0)()
            jobs += trials
        return jobs or self.propose()

    def _steps_of(self, method: ComparedMethod) -> list[Callable[[], list[Job]]]:
        """What gives the trials of a method after its candidates, step by step: each follows from what ended before."""
        if method.samples:
            return []
        return [
            partial(self._continued, method),
            *(partial(self.better_trials, method, place) for place in range(1, len(self.tune_seeds))),
            *[partial(self.neighbour_trials, method)] * NEIGHBOURS,
        ]

    def _continued(self, method: ComparedMethod) -> list[Job]:
        """The better half of a method's candidates that have paused, to go on from there."""
        paused = [job for job in self.jobs if job.label == method.label and job.role == "candidate" and job.pause]
        scored = [(job, job.score_at_pause()) for job in paused if job.outcome().status == "stopped"]
        ranked = sorted((pair for pair in scored if pair[1] is not None), key=lambda pair: self._loss(pair[1]))
        return [replace(job, pause=None) for job, _ in ranked[: method.tried_on(1)]]

    def better_trials(self, method: ComparedMethod, place: int) -> list[Job]:
        """The jobs on the tuning seed at this place: the better half of a method's points so far."""
        ranked = sorted(self.plan.finalists(method.label), key=self._loss_of)[: method.tried_on(place)]
        seeds = self.tune_seeds[place : place + 1]
        return [job for point in ranked for job in self._trials(method, point.values, seeds)]

    def _trials(self, method: ComparedMethod, values: Values, seeds: Sequence[int]) -> list[Job]:
        return [self._job(method, values, seed, "candidate", method.trial) for seed in seeds]

    def known_jobs(self) -> list[Job]:
        """The jobs that are known before anything is tried."""
        finals = {method.label: method.seeds or self.config.seeds for method in self.compared if not method.tuned}
        return self.candidates() + [
            self._job(method, method.points[0], seed)
            for method in self.compared
            for seed in finals.get(method.label, ())
        ]

    def recall(self) -> None:
        """Begin with the points that an earlier command proposed in this folder, up to the requested number."""
        self._begin_anew()
        if not is_study(self.folder):
            return
        before = Plan.read(self.folder)
        if before.search != self.plan.search or Config(**before.config).key() != self.config.key():
            return
        self.plan.gpus, self.plan.gpu_full = before.gpus, before.gpu_full
        for method in self.compared:
            known = [entry.values for entry in before.points(method.label)][: method.samples]
            trials = [entry for entry in before.entries if (entry.role, entry.label) == ("candidate", method.label)]
            is_same = method.samples and {entry.seed for entry in trials} == {*self.tune_seeds}
            # Each follows from the scores before it: a point that this search would not propose makes the others moot.
            if is_same and known[:1] == self.points[method.label] and all(map(self._space_of(method).holds, known)):
                self.points[method.label] = known

    def propose(self) -> list[Job]:
        """The trials of one more point, for the method that waits for the fewest; none if all have their points."""
        left = [method for method in self.compared if len(self.points[method.label]) < method.samples]
        for method in sorted(
            left, key=lambda c: sum(self._has_missing_jobs(c, values) for values in self.points[c.label])
        ):
            tried = [self._score_of_point(method, values) for values in self.points[method.label]]
            if (values := propose(self._space_of(method), tried, partial(self._is_legal, method))) is not None:
                self.points[method.label].append(values)
                return self._trials(method, values, self.tune_seeds)
        return []

    def _space_of(self, method: ComparedMethod) -> Space:
        return method.space or Space()

    def _is_legal(self, method: ComparedMethod, point: Values) -> bool:
        why = method.refusal(self.config, point)
        if why is not None and (line := [method.label, point_name(point), why]) not in self.plan.refused:
            self.plan.refused.append(line)
        return why is None

    def _jobs_of(self, method: ComparedMethod, values: Values) -> list[Job]:
        return [job for job in self.jobs if (job.role, job.label, job.values) == ("candidate", method.label, values)]

    def _has_missing_jobs(self, method: ComparedMethod, values: Values) -> bool:
        return any(job.outcome().status == "missing" for job in self._jobs_of(method, values))

    def _score_of_point(self, method: ComparedMethod, values: Values) -> TriedPoint:
        """A point with its mean score over the tuning seeds, higher is better."""
        jobs = self._jobs_of(method, values)
        scores = [self._entry(job).scores.get("val") for job in jobs]
        known = [score if self.metric.higher else -score for score in scores if score is not None]
        return TriedPoint(values, fmean(known) if jobs and len(known) == len(jobs) else None)

    def _loss(self, score: float | None) -> float:
        """A score on validation, turned so that lower is better."""
        return (-1 if self.metric.higher else 1) * (score or 0)

    def _loss_of(self, point: Entry) -> float:
        """The loss of a point after the last round."""
        return self._loss(point.scores["val"])

    def choose(self) -> None:
        """Choose the best point of every method, the first of equals, by their means over the tuning seeds.

        Raises ConfigError if the subject has none, or if no method has one although all trials are done.
        """
        best = {method.label: self._best_of(method) for method in self.compared}
        chosen = self.plan.choices
        chosen |= {label: point for label, point in best.items() if point is not None}
        open_sides = {
            c.label: list(self._untried_neighbours(c, chosen[c.label])) for c in self.chosen_methods if c.tuned
        }
        self.plan.ends, self.plan.untried = (
            {
                label: list(dict.fromkeys(one.key for one in own if one.at_end == at_end))
                for label, own in open_sides.items()
            }
            for at_end in (True, False)
        )
        subject = self.plan.subject
        if chosen and subject in (None, *chosen):
            return
        tried = [e for e in self.plan.entries if e.role == "candidate" and subject in (None, e.label)]
        if tried and all(entry.status == "done" for entry in tried):
            raise ConfigError(
                f"{self.metric.label} on validation has no finite mean over clients in any trial, so that no candidate "
                "can be chosen"
            )
        if subject is not None:
            failed = next((o.error for o in (job.outcome() for job in self.jobs) if o.error), "no trial finished")
            raise ConfigError(f"no trial finished; the first error: {failed}")

    def _best_of(self, method: ComparedMethod) -> Values | None:
        """The best point of a method so far, if there is one."""
        if not method.tuned:
            return method.points[0]
        known = self.plan.finalists(method.label)
        return min(known, key=self._loss_of).values if known else None

    @property
    def tries_neighbours(self) -> bool:
        """Whether points next to the best ones are tried."""
        return self.plan.search == "grid" and not self.listed_only

    def _untried_neighbours(self, method: ComparedMethod, best: Values) -> Iterator[Neighbour]:
        """The legal points next to a method's best one that were not tried."""
        tried, is_grid = self.points[method.label], self.plan.search == "grid"
        for one in untried_neighbours(method.name, self._space_of(method), tried, best, is_grid):
            if method.refusal(self.config, one.point) is None:
                yield one

    def neighbour_trials(self, method: ComparedMethod) -> list[Job]:
        """The trials of the points next to a method's best one that were not tried.

        A grid tries no values of its subject but the listed ones, and says where the best one is the last of them.
        """
        best = self._best_of(method)
        if not self.tries_neighbours or best is None:
            return []
        listed_only = self.plan.subject if self.plan.kind == "grid" and self.plan.stopping_rule is None else None
        extra, jobs = self.plan.beside_best, list[Job]()
        for one in list(self._untried_neighbours(method, best)):
            if not (one.is_past and method.label == listed_only):
                self.points[method.label].append(one.point)
                extra[method.label] = extra.get(method.label, 0) + 1
                jobs += self._trials(method, one.point, self.tune_seeds)
        return jobs

    def finals(self) -> list[Job]:
        """The jobs of the second stage: the chosen point of every method over the final seeds, or over the first."""
        return self._finals({method.label: method.seeds or self.config.seeds for method in self.compared})

    def next_look(self) -> list[Job]:
        """The jobs that a sequential test needs for its next look; none if it is over, or if there is none."""
        if self.plan.stopping_rule is None:
            return []
        done = self.plan.records(self.folder, only_done=True)
        frames, clients, outcomes = (
            {label: getattr(records, part)() for label, records in done.items()}
            for part in ("metrics", "clients", "outcomes")
        )
        test = sequential_test_of(self.plan, FinalScores.of(self.metric, frames, clients, outcomes))
        known = {(job.label, job.seed) for job in self.jobs if job.role == "final"}
        seeds = {label: [s for s in range(n) if (label, s) not in known] for label, n in test.needs.items()}
        return self._finals(seeds)

    def _finals(self, seeds: Mapping[str, Sequence[int]]) -> list[Job]:
        more = {} if self.final_val is None else {"data.val": self.final_val}
        return [
            self._job(method, self.plan.choices[method.label], seed, more=more)
            for method in self.chosen_methods
            for seed in seeds.get(method.label, ())
        ]

    @property
    def proposes(self) -> bool:
        """Whether points are proposed one after another."""
        return any(method.samples for method in self.compared)

    @property
    def is_waiting(self) -> bool:
        """Whether some job has not ended."""
        return any(self._entry(job).status == "missing" for job in self.jobs)

    @property
    def chosen_methods(self) -> list[ComparedMethod]:
        """The methods of which a point has been chosen."""
        return [method for method in self.compared if method.label in self.plan.choices]

    @property
    def references(self) -> list[str]:
        """The methods that train on the pooled data of all clients, which do not compete."""
        return [method.label for method in self.compared if method.label in self._pooled]

    def begin(self, jobs: Sequence[Job]) -> None:
        """Add jobs to the plan, or have them in place of those that they continue."""
        self.jobs = (*{(job.role, job.name): job for job in (*self.jobs, *jobs)}.values(),)
        self.write()

    def write(self) -> None:
        """Update plan.json."""
        self.plan.entries = [self._entry(job) for job in self.jobs]
        self.plan.references = self.references
        trials = [(job, entry.status) for job, entry in zip(self.jobs, self.plan.entries, strict=True)]
        trials = [(job, status) for job, status in trials if job.role == "candidate"]
        saved = sum(job.config.rounds - job.last - 1 for job, status in trials if status == "stopped")
        self.plan.rounds_saved = saved, sum(job.config.rounds for job, _ in trials)
        self.plan.spaces = {
            method.label: {key: list(dict.fromkeys(point[key] for point in points)) for key in points[0]}
            for method in self.compared
            if method.tuned
            for points in [self.points[method.label]]
        }
        self.plan.write(self.folder)

    def _entry(self, job: Job) -> Entry:
        """The entry of a job, whose files are read until it is done."""
        key = job.role, job.name
        if key not in self._done:
            entry = job.entry(self.folder)
            if entry.status != "done":
                return entry
            self._done[key] = entry
        return self._done[key]

    def _job(
        self, method: ComparedMethod, values: Values, seed: int, role: EntryRole = "final", more: Values | None = None
    ) -> Job:
        config = method.config(self.config, {**values, **(more or {})})
        shares_gpu = open_to_trial(config)
        if config.wandb.group is None:
            config.wandb.group = study_name(self.folder)
        run = self.resolver.resolve(config)
        config = loggers.with_reachable_loggers(run.config)
        about = dict(values=dict(values), setting=self.setting, study=self.folder, point=self.plan.point)
        about |= dict(role=role, shares_gpu=shares_gpu, data=PreparedDataset.of(run.dataset))
        return Job.of(config, seed, self.root, method.label, **about)
