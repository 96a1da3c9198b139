"""A run: one method, one data set, one partition, one or more seeds. A study of one stage without a choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import Config
from fedbench.config.schema import folder_name
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.results.loggers import log_page
from fedbench.results.plan import FILE, Plan
from fedbench.results.reader import Records
from fedbench.runtime.kept_models import MODELS
from fedbench.studies import places
from fedbench.studies.attempt import Watcher, perform
from fedbench.studies.gather import gather
from fedbench.studies.job import Job
from fedbench.studies.resolve import check, resolve
from fedbench.tasks import Metric


@dataclass(frozen=True)
class Result:
    """What a run left. The frames are read when they are asked for."""

    folder: Path
    config: Config

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def models(self) -> Path:
        """With `save_models`: `seed-S/client-C-POINT.pt`, state dicts that `torch.load` reads."""
        return self.folder / MODELS

    @cached_property
    def summary(self) -> dict[str, Any]:
        return Records(self.folder).summary()

    @cached_property
    def metric(self) -> Metric:
        """The one that tables and pages go by."""
        return Records(self.folder).metric()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per seed, round and evaluation point."""
        return Records(self.folder).metrics()

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per seed, round, client and evaluation point."""
        return Records(self.folder).clients()

    @cached_property
    def traces(self) -> pd.DataFrame:
        """One row per seed, round, client and traced scalar."""
        return Records(self.folder).traces()


def run(
    config: Config,
    *,
    resume: bool = False,
    experiment: str = "run",
    watch: Watcher | None = None,
    report: bool = True,
    debug: bool = False,
) -> Result:
    """Run what was asked, or go on with it, and return its result; a seed that is done is not run again.

    resume: refuse to start from nothing. watch: told of every evaluated round (`Progress.update` fits). debug: without
    hosts, raise what fails at a client where it happens, for a debugger. Raises ConfigError, before round 1, for what
    cannot be run, and RunError where it fails later: in the user's code, or at every client.
    """
    config, dataset = resolve(config)
    folder = config.out or Path("results") / _experiment(experiment) / (config.name or places.default_name(config))
    result = Result(folder, config)
    with places.made(folder):
        if resume and not has_begun(config, folder):
            raise ConfigError(f"--resume: {folder} holds no run to go on with; leave --resume out to start one")
        state = places.state_of(folder, config)
        if state == "done":
            places.tidy(folder)
        else:
            _make(config, dataset, folder, watch or (lambda event: None), debug)
    if report and not (state == "done" and result.report.exists()):
        from fedbench.report import make_report

        make_report(folder)
        log_page(folder, config)
    return result


def jobs_of(config: Config, folder: Path) -> list[Job]:
    """A run of one seed is a job in its own folder; one of several is put together from the jobs of its seeds."""
    if len(config.seeds) == 1:
        return [Job(config, folder, config.method.name)]
    return [Job.kept(config, seed, config.out or Path("results")) for seed in config.seeds]


def has_begun(config: Config, folder: Path) -> bool:
    """Whether there is anything to go on with: the run, or the job of a seed."""
    return any((path / "config.yaml").exists() for path in (folder, *(job.folder for job in jobs_of(config, folder))))


def _make(config: Config, dataset: Dataset, folder: Path, watch: Watcher, debug: bool) -> None:
    jobs = jobs_of(config, folder)
    left = [job for job in jobs if not job.done]
    partitions = check(config, dataset, [job.seed for job in left])
    if len(jobs) == 1:
        perform(jobs, dataset, partitions, watch, debug)
        return
    with places.alone_in(folder):
        plan_of(config, folder, jobs)
        try:
            perform(left, dataset, partitions, watch, debug)
        except ConfigError:
            if not has_begun(config, folder):
                (folder / FILE).unlink()
            raise
        plan_of(config, folder, jobs)
        gather(folder, config, [job.folder for job in jobs])


def plan_of(config: Config, folder: Path, jobs: Sequence[Job]) -> None:
    """Write what the run consists of."""
    entries = [job.entry(folder) for job in jobs]
    Plan("run", config.method.name, config.model_dump(mode="json"), entries).write(folder)


def _experiment(name: str) -> str:
    try:
        return folder_name(name)
    except ValueError as error:
        raise ConfigError(f"experiment = {name!r}: {error}") from None
