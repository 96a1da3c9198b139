"""A study of methods in two stages: each is tuned over its points, and the best one runs over the final seeds."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.loggers import log_page
from fedbench.results.plan import EntryRole, Plan, study_name
from fedbench.runtime.liveness import outliving
from fedbench.studies import folder as places
from fedbench.studies.contenders import Contender
from fedbench.studies.execute import Watch, execute, room_for
from fedbench.studies.job import Job, Outcome
from fedbench.studies.resolve import check, resolve
from fedbench.studies.space import Values, at_an_end
from fedbench.tasks import Metric, load

SEEDS = (0, 1, 2)
"""Of final runs, where none are asked for."""


@dataclass
class Contest:
    """A study of contenders in its folder. root: the results folder below which jobs are kept.

    config: what is asked of all of them. required: the contender without which there is no answer, if there is one.
    final_val: `data.val` of final runs, where it is another one. setting: what tells it from others that are held with
    it.
    """

    plan: Plan
    config: Config
    contenders: Sequence[Contender]
    folder: Path
    root: Path
    tune_seeds: Sequence[int]
    required: str | None = None
    final_val: float | None = None
    setting: str = ""
    jobs: tuple[Job, ...] = ()

    def __post_init__(self) -> None:
        self.plan.spaces = {c.label: axes_of(c.points) for c in self.contenders if len(c.points) > 1}

    def first(self) -> Job:
        """What would be run first, which tells how much room a trial needs."""
        contender = self.contenders[0]
        return self._job(contender, contender.points[0], self.config.seeds[0])

    def check(self) -> Metric:
        """Try what every contender is first asked to run. The metric that choices go by. Raises ConfigError."""
        clash = sorted(set(self.tune_seeds) & set(self.config.seeds))
        if clash and any(len(contender.points) > 1 for contender in self.contenders):
            raise ConfigError(
                f"tune_seeds: {', '.join(map(str, clash))} is also a final seed, whose numbers would be chosen on "
                "themselves; take others, for example --tune-seeds 90"
            )
        for contender in self.contenders:
            asked, dataset = resolve(contender.config(self.config, contender.points[0]))
            check(asked, dataset, [self.config.seeds[0]])
        return load(dataset.task).primary

    def candidates(self) -> list[Job]:
        """The jobs of the first stage: every point of every contender that has a choice, on the tuning seeds."""
        return [
            self._job(contender, values, seed, "candidate", contender.trial)
            for contender in self.contenders
            if len(contender.points) > 1
            for values in contender.points
            for seed in self.tune_seeds
        ]

    def choose(self, metric: Metric) -> None:
        """The best point of every contender. Raises ConfigError where the required one has none."""
        for contender in self.contenders:
            self._choose(contender, metric)
        chosen = self.plan.choices
        self.plan.ends = {c.label: at_an_end(c.method, c.points, chosen[c.label]) for c in self.contenders_with(chosen)}
        if self.required is not None and self.required not in chosen:
            failed = next((o.error for o in (job.outcome() for job in self.jobs) if o.error), "no trial finished")
            raise ConfigError(f"every trial of the grid failed; the first says: {failed}")

    def finals(self) -> list[Job]:
        """The jobs of the second stage: the chosen point of every contender over the final seeds."""
        more = {} if self.final_val is None else {"data.val": self.final_val}
        return [
            self._job(contender, self.plan.choices[contender.label], seed, more=more)
            for contender in self.contenders_with(self.plan.choices)
            for seed in contender.seeds or self.config.seeds
        ]

    def contenders_with(self, choices: Mapping[str, Values]) -> list[Contender]:
        return [contender for contender in self.contenders if contender.label in choices]

    def begin(self, jobs: Sequence[Job]) -> None:
        """Take jobs into the plan."""
        self.jobs = (*self.jobs, *jobs)
        self.write()

    def write(self) -> None:
        """Keep plan.json true."""
        self.plan.entries = [job.entry(self.folder, self.plan.point) for job in self.jobs]
        self.plan.write(self.folder)

    def _job(
        self, contender: Contender, values: Values, seed: int, role: EntryRole = "final", more: Values | None = None
    ) -> Job:
        asked = resolved(contender.config(self.config, {**values, **(more or {})}), self.folder)
        return Job.kept(asked, seed, self.root, contender.label, role=role, values=dict(values), setting=self.setting)

    def _choose(self, contender: Contender, metric: Metric) -> None:
        """The best mean over the tuning seeds on validation after the last round; the first of equals."""
        if len(contender.points) == 1:
            self.plan.choices[contender.label] = contender.points[0]
            return
        sign = 1 if metric.higher else -1
        scored = [(entry.scores.get("val"), entry.values) for entry in self.plan.points(contender.label)]
        known = [(sign * score, values) for score, values in scored if score is not None]
        if known:
            self.plan.choices[contender.label] = max(known, key=lambda pair: pair[0])[1]


def hold(contests: Sequence[Contest], at_once: int | None = None, watch: Watch | None = None) -> None:
    """Do what is missing of contests, stage by stage side by side, and write their pages.

    Raises ConfigError before the first trial.
    """
    new = outliving(partial(_hold, contests, at_once, watch), logging.getLogger("fedbench").warning)
    from fedbench.report import make_report

    for contest in contests:
        make_report(contest.folder)
        if new:
            log_page(contest.folder, contest.jobs[0].config)


def _hold(contests: Sequence[Contest], at_once: int | None, watch: Watch | None) -> bool:
    """Says whether anything was missing."""
    with ExitStack() as stack:
        for contest in contests:
            stack.enter_context(places.made(contest.folder))
        metrics = [contest.check() for contest in contests]
        candidates = [contest.candidates() for contest in contests]
        stack.enter_context(room_for([contests[0].first()], at_once))
        for contest in contests:
            contest.jobs = ()
            stack.enter_context(places.alone_in(contest.folder))
        new = stage(contests, candidates, at_once, watch)
        for contest, metric in zip(contests, metrics, strict=True):
            contest.choose(metric)
        new |= stage(contests, [contest.finals() for contest in contests], at_once, watch)
        for contest in contests:
            contest.write()
    return new


def stage(contests: Sequence[Contest], jobs: Sequence[Sequence[Job]], at_once: int | None, watch: Watch | None) -> bool:
    """Run the jobs of every contest, all of them side by side; says whether any of them was not done."""

    def told(outcomes: dict[str, Outcome], running: list[str]) -> None:
        for contest in contests:
            contest.write()
        if watch is not None:
            watch(outcomes, running)

    for contest, own in zip(contests, jobs, strict=True):
        contest.begin(own)
    every = [job for own in jobs for job in own]
    new = any(job.outcome().status != "done" for job in every)
    if every:
        execute(every, contests[0].folder / ".tune", at_once, told)
    return new


def resolved(config: Config, folder: Path) -> Config:
    """Side by side beats inside: unless hosts are asked for, a trial is one process."""
    if config.resources.hosts == "auto":
        config.resources.hosts = 0
    if config.wandb.group is None:
        config.wandb.group = study_name(folder)
    return resolve(config)[0]


def axes_of(points: Sequence[Values]) -> dict[str, list[Any]]:
    """The values of every key among some points."""
    return {key: list(dict.fromkeys(point[key] for point in points)) for key in points[0]}


def asked_with_seeds(config: Config) -> Config:
    """The configuration with the seeds of final runs: three where none are asked for."""
    return config if "seeds" in config.model_fields_set else config.model_copy(update={"seeds": list(SEEDS)})


def unique(seeds: Sequence[int]) -> list[int]:
    """Seeds that are legal. Raises ConfigError."""
    try:
        return Config(seeds=list(seeds)).seeds
    except ConfigError as error:
        raise ConfigError(f"tune_{error}") from None


def legal_point(name: str) -> str:
    """An evaluation point that every method has. Raises ConfigError."""
    if name not in ("after_agg", "after_fit"):
        raise ConfigError(f"point = {name}: must be after_agg or after_fit")
    return name


def legal_share(value: float | None) -> float | None:
    """A share of held-out images. Raises ConfigError."""
    try:
        return None if value is None else Config(data={"val": value}).data.val
    except ConfigError as error:
        raise ConfigError(str(error).replace("data.val", "final_val", 1)) from None


def need_validation(config: Config) -> None:
    """Raises ConfigError where there is nothing to choose by."""
    if not config.data.val:
        raise ConfigError(
            "data.val = 0: a grid chooses on the validation split; leave some, for example --data.val 0.1"
        )
