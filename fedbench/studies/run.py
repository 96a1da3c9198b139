"""A run: one method, one data set, one partition, one or more seeds. A study with one stage and no choice."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from fedbench.checks.before_run import check_new_code
from fedbench.config import Config
from fedbench.config.schema import folder_name
from fedbench.config.words import plural
from fedbench.data.describe import description_of
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.jobs import folder_locks, longer_runs, provenance, run_names, run_state
from fedbench.jobs.job import Job
from fedbench.jobs.merge_seeds import gather
from fedbench.jobs.resolve import check_run, resolve, with_defaults
from fedbench.jobs.run_job import Watcher, run_seeds
from fedbench.results.plan import PLAN_FILE, Plan, is_study
from fedbench.results.quantities import duration, seed_range
from fedbench.results.reader import Records
from fedbench.runtime.build import build_parts
from fedbench.runtime.evaluation.unscored import unscored_before
from fedbench.runtime.kept.paths import MODELS_FOLDER
from fedbench.runtime.ray import cluster
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.warnings import config_warnings, first_warnings, warn_of_outputs
from fedbench.studies.cost import Cost, not_here
from fedbench.studies.stages import shown_in_notebook
from fedbench.studies.study_result import StudyResult
from fedbench.tasks import Metric
from fedbench.tracking.loggers import log_page

log = logging.getLogger("fedbench")


@dataclass(frozen=True)
class Result(StudyResult):
    """The result of a run. The frames are read on first access.

    `table` has a row per evaluation point and choice of the round.
    """

    config: Config
    file: ClassVar[None] = None

    @property
    def models(self) -> Path:
        """With `save_models`: `seed-S/client-C/POINT.safetensors`, with how input is normalised and a script."""
        return self.folder / MODELS_FOLDER

    @cached_property
    def summary(self) -> dict[str, Any]:
        return Records(self.folder).summary()

    @cached_property
    def metric(self) -> Metric:
        """The primary metric of tables and pages."""
        return Records(self.folder).metric()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per seed, round and evaluation point."""
        return self._read("metrics")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per seed, round, client and evaluation point."""
        return self._read("clients")

    @cached_property
    def newcomers(self) -> pd.DataFrame:
        """One row per seed, newcomer, local epochs, images (0: all) and metric."""
        return self._read("newcomers")

    @cached_property
    def traces(self) -> pd.DataFrame:
        """One row per seed, round, client and traced scalar."""
        return self._read("traces")

    def _read(self, name: str) -> pd.DataFrame:
        """A table of the records; says which files are left out."""
        records = Records(self.folder)
        table: pd.DataFrame = getattr(records, name)()
        for line in records.remedies:
            log.warning("%s", line)
        return table


def run(
    config: Config | Mapping[str, Any],
    *,
    resume: bool = False,
    experiment: str = "run",
    watch: Watcher | None = None,
    report: bool = True,
    debug: bool = False,
) -> Result:
    """Run a configuration, or continue its run, and return the result; a finished seed is not run again.

    resume: refuse to start from nothing. watch: gets every evaluated round (`Progress.update` fits); a notebook shows
    the progress without it. debug: without hosts, raise client failures where they happen, for a debugger. Raises
    ConfigError before round 1 if the configuration cannot be run, and RunError if the run fails later: in the user's
    code, or at every client.

    >>> result = run({"method": "fedper", "rounds": 2, "resources": {"hosts": 0}})
    >>> sorted(set(result.metrics["round"]))
    [1, 2]
    """
    config = Config.of(config)
    open_hosts = config.resources.hosts == "auto"
    resolved, folder = plan_run(config, experiment)
    config = resolved.config
    result = Result(folder, config)
    with checked_folder(folder, config, resume) as state:
        if state == "done":
            run_state.warn_about_changes([(folder, config)])
            folder_locks.remove_leftovers(folder, config.rounds)
        else:
            if before := longer_runs.shorter_run(folder, config):
                log.info("%s holds %d rounds: continuing to %d", folder, before.rounds, config.rounds)
            with shown_in_notebook(config, watch) as shown:
                _run_missing_seeds(resolved, folder, shown, open_hosts, debug)
    if report and not (state == "done" and result.report.exists()):
        from fedbench.report import make_report

        make_report(folder)
        log_page(folder, config)
    return result


def plan_run(config: Config, experiment: str = "run") -> tuple[ResolvedRun, Path]:
    """A run, not begun yet, and its folder. Raises ConfigError."""
    if (share := config.resources.gpus_per_trial) != "auto":
        line = f"resources.gpus_per_trial = {share:g}: a run has no trials; leave it out, or set gpus_per_host"
        raise ConfigError(line)
    provenance.refresh_fingerprints(config)
    resolved = resolve(config)
    config = resolved.config
    provenance.check_code_is_current(config)
    root = Path("results") / _experiment(experiment)
    return resolved, config.out or (root / config.name if config.name else run_names.folder_of(root, config))


@contextmanager
def checked_folder(folder: Path, config: Config, resume: bool) -> Iterator[run_state.State]:
    """The state of a run's folder, which is made for the block. Raises ConfigError if the run cannot be kept there."""
    with folder_locks.writable(folder):
        run_state.refuse_other_results(folder, "run")
        state = run_state.state_of(folder, config)
        if resume and state == "new" and all(job.state == "new" for job in jobs_of(config, folder)):
            raise ConfigError(f"--resume: {folder} holds no run to continue; leave --resume out to start one")
        yield state


def preview_run(config: Config, resume: bool = False) -> list[str]:
    """What a run would say before its first round, after the same checks; nothing is begun. Raises ConfigError.

    Of a published data set that is not on this machine it is not fetched, and the checks of the data are left out.
    """
    if line := not_here(config):
        return [line, *config_warnings(with_defaults(config))]
    resolved, folder = plan_run(config)
    with checked_folder(folder, resolved.config, resume) as state:
        jobs = jobs_of(resolved.config, folder)
        left = [job.seed for job in jobs if job.state != "done"]
        partitions = check_run(resolved, left) if state != "done" else {}
    done = [seed for seed in resolved.config.seeds if seed not in partitions]
    known = [f"{seed_range(done)}: already finished in {folder}"] if done else []
    lines = [line for seed, dealt in partitions.items() for line in first_lines(resolved, dealt, seed)]
    return [*data_lines(resolved, partitions), *dict.fromkeys(lines), *known]


def data_lines(run: ResolvedRun, partitions: Mapping[int, Partition]) -> list[str]:
    """The lines about what was read; none if all seeds are finished."""
    first = next(iter(partitions.values()), None)
    return description_of(run.dataset, run.config, first).block if first else []


def first_lines(run: ResolvedRun, dealt: Partition, seed: int) -> list[str]:
    """The remarks and warnings about data, partition, model and method of one seed. Raises ConfigError."""
    before = [*run.dataset.remarks, *dealt.warnings, *unscored_before(run, dealt, seed)]
    parts = build_parts(run, dealt, seed)
    return [*before, *warn_of_outputs(parts, dealt), *first_warnings(parts)]


def jobs_of(config: Config, folder: Path) -> list[Job]:
    """The jobs of a run. One seed is a job in the run's folder; several seeds are merged from their jobs.

    A folder named by the user outlives changes of the user's code and data, which make other jobs. If it holds a run
    with fewer rounds, new jobs continue from the old ones, which stay. Raises ConfigError if they cannot.
    """
    named = config.out or config.name
    if len(config.seeds) == 1 and not (named and provenance.short_fingerprint(config)):
        return [Job(config, folder, config.method.name)]
    root = config.out or Path("results")
    jobs = [Job.of(config, seed, root) for seed in config.seeds]
    if (before := longer_runs.shorter_run(folder, config)) is None:
        return jobs
    return [_continue_from(job, Job.of(before, job.seed, root)) for job in jobs]


def _continue_from(job: Job, shorter: Job) -> Job:
    """The job; if a shorter one has a checkpoint, it continues from there. Raises ConfigError if it cannot."""
    known = (shorter.folder / "config.yaml").exists()
    if known and longer_runs.check_longer(shorter.folder, shorter.config, job.config.rounds):
        return replace(job, shorter=shorter.folder)
    return job


def _run_missing_seeds(run: ResolvedRun, folder: Path, watch: Watcher, open_hosts: bool, debug: bool) -> None:
    config = run.config
    jobs = jobs_of(config, folder)
    seeds = [job.seed for job in jobs if job.state != "done"]
    partitions = check_run(run, seeds)
    for line in [*data_lines(run, partitions), *check_new_code(config)]:
        log.info("%s", line)
    run_state.warn_about_changes([(job.folder, job.config) for job in jobs])
    if open_hosts and seeds:
        config.resources.hosts = worth_hosts(run, len(seeds))
        jobs = jobs_of(config, folder)
    left = [job for job in jobs if job.seed in seeds]
    if jobs[0].folder == folder:
        run_seeds(run, jobs, partitions, watch, debug)
        return
    with folder_locks.folder_in_turn(folder, log.warning):
        known = is_study(folder)
        write_plan(config, folder, jobs)
        try:
            run_seeds(run, left, partitions, watch, debug)
        except ConfigError:
            if not known and all(job.state == "new" for job in jobs):
                (folder / PLAN_FILE).unlink()
            raise
        write_plan(config, folder, jobs)
        gather(folder, config, [job.folder for job in jobs])


def worth_hosts(run: ResolvedRun, seeds: int) -> int:
    """How many of the hosts that fit on this machine are worth starting Ray, or 0; logs the choice.

    Results do not depend on it, except on a GPU, which a run in this process does not use.
    """
    resources = run.config.resources
    hosts = int(resources.hosts)
    if not hosts or resources.address != "local" or resources.gpus_per_host or cluster.is_joined():
        return hosts
    seconds = seeds * Cost(run.config, run.dataset).seconds
    worth = seconds > cluster.START
    where = f"on {plural(hosts, 'host')}" if worth else "in this process, sooner than Ray would have started"
    log.info("hosts = auto: about %s of work, %s", duration(seconds), where)
    return hosts if worth else 0


def write_plan(config: Config, folder: Path, jobs: Sequence[Job]) -> None:
    """Write the run's jobs as a plan."""
    entries = [job.entry(folder) for job in jobs]
    Plan("run", config.method.name, config.model_dump(mode="json"), entries).write(folder)


def _experiment(name: str) -> str:
    try:
        return folder_name(str(name))
    except ValueError as error:
        raise ConfigError(f"experiment = {name!r}: {error}") from None
