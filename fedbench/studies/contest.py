"""A study of methods in two stages: each is tuned over its points, and the best one runs over the final seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.results.plan import Plan
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

    required: the contender without which there is no answer, if there is one. final_val: `data.val` of final runs,
    where it is another one.
    """

    plan: Plan
    contenders: Sequence[Contender]
    folder: Path
    root: Path
    tune_seeds: Sequence[int]
    seeds: Sequence[int]
    watch: Watch = lambda outcomes, running: None
    required: str | None = None
    final_val: float | None = None
    jobs: tuple[Job, ...] = ()

    def hold(self, config: Config, at_once: int | None = None, watch: Watch | None = None) -> None:
        """Do what is missing of it, and write its page. Raises ConfigError before the first trial."""
        self.watch = watch or self.watch
        self.plan.spaces = {c.label: axes_of(c.points) for c in self.contenders if len(c.points) > 1}
        with places.made(self.folder):
            dataset = self.check(config)
            jobs = self.candidates(config)
            with room_for([self.first(config)]), places.alone_in(self.folder):
                self.run(config, dataset, jobs, at_once)
        from fedbench.report import make_report

        make_report(self.folder)

    def first(self, config: Config) -> Job:
        """What would be run first, which tells how much room a trial needs."""
        contender = self.contenders[0]
        asked = resolved(contender.config(config, contender.points[0]), self.folder)
        return Job.kept(asked, self.seeds[0], self.root, contender.label)

    def candidates(self, config: Config) -> list[Job]:
        """The jobs of the first stage: every point of every contender that has a choice, on the tuning seeds."""
        return [
            Job.kept(asked, seed, self.root, contender.label, role="candidate", values=values)
            for contender in self.contenders
            if len(contender.points) > 1
            for values in contender.points
            for asked in [resolved(contender.config(config, values), self.folder)]
            for seed in self.tune_seeds
        ]

    def check(self, config: Config) -> Dataset:
        """Try what every contender is first asked to run. Raises ConfigError."""
        clash = sorted(set(self.tune_seeds) & set(self.seeds))
        if clash and any(len(contender.points) > 1 for contender in self.contenders):
            raise ConfigError(
                f"tune_seeds: {', '.join(map(str, clash))} is also a final seed, whose numbers would be chosen on "
                "themselves; take others, for example --tune-seeds 90"
            )
        for contender in self.contenders:
            asked, dataset = resolve(contender.config(config, contender.points[0]))
            check(asked, dataset, [self.seeds[0]])
        return dataset

    def run(self, config: Config, dataset: Dataset, jobs: Sequence[Job], at_once: int | None) -> None:
        """Both stages and the choice between them. Raises ConfigError where the required contender has no point."""
        metric = load(dataset.task).primary
        self._stage(jobs, at_once)
        for contender in self.contenders:
            self._choose(contender, metric)
        self.plan.ends = {
            c.label: at_an_end(c.method, c.points, self.plan.choices[c.label])
            for c in self.contenders
            if c.label in self.plan.choices
        }
        if self.required is not None and self.required not in self.plan.choices:
            failed = next((o.error for o in (job.outcome() for job in jobs) if o.error), "no trial finished")
            raise ConfigError(f"every trial of the grid failed; the first says: {failed}")
        self._stage(list(self._finals(config)), at_once)
        self.write()

    def _finals(self, config: Config) -> Iterator[Job]:
        for contender in self.contenders:
            if contender.label in self.plan.choices:
                values = self.plan.choices[contender.label]
                more = {} if self.final_val is None else {"data.val": self.final_val}
                asked = resolved(contender.config(config, {**values, **more}), self.folder)
                for seed in self.seeds:
                    yield Job.kept(asked, seed, self.root, contender.label, values=values)

    def _stage(self, jobs: Sequence[Job], at_once: int | None) -> None:
        self.jobs = (*self.jobs, *jobs)
        self.write()
        if jobs:
            execute(jobs, self.folder / ".tune", at_once, self._told)

    def _told(self, outcomes: dict[str, Outcome], running: list[str]) -> None:
        self.write()
        self.watch(outcomes, running)

    def write(self) -> None:
        """Keep plan.json true."""
        self.plan.entries = [job.entry(self.folder, self.plan.point) for job in self.jobs]
        self.plan.write(self.folder)

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


def resolved(config: Config, folder: Path) -> Config:
    """Side by side beats inside: unless hosts are asked for, a trial is one process."""
    if config.resources.hosts == "auto":
        config.resources.hosts = 0
    if config.wandb.group is None:
        config.wandb.group = folder.name
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
