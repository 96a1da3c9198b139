"""Runs jobs: resolves them on their machine, drives them, and maintains their loggers and summaries."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError, RunError
from fedbench.jobs import description, folder_locks, longer_runs, provenance, run_state
from fedbench.jobs.folder_sync import Supplies, synced_copy
from fedbench.jobs.job import ERROR, Job
from fedbench.jobs.resolve import check_run
from fedbench.results.events import (
    CheckpointRestored,
    Evaluation,
    Event,
    ModelsBuilt,
    Remark,
    SeedBegun,
    SeedEnded,
    SeedPaused,
    WatchedEvent,
)
from fedbench.results.reader import Records
from fedbench.results.summary import write_summary
from fedbench.runtime.drive import SeedTask, drive_seeds
from fedbench.runtime.hosts import Hosts, InProcess
from fedbench.runtime.machine.gpu import GpuFullError
from fedbench.runtime.ray import cluster
from fedbench.runtime.ray.driver_actor import drive_on_ray
from fedbench.runtime.ray.hosts import RayHosts
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.states import checkpoint
from fedbench.tracking.loggers import AttachedLogger, catch_up, log_records, make_loggers
from fedbench.user_code import refuse_exits

SYNC_EVERY = 5.0
"""Seconds between two copies of a job's folder from another machine to the results folder."""
Watcher = Callable[[WatchedEvent], None]


def run_job(job: Job, supplies: Supplies | None = None, watch: Watcher = lambda event: None) -> Exception | None:
    """Run a job in this process; returns the error that has ended it, or None if it is done.

    A failure is written to error.txt and not raised, because Ray Tune would try again. supplies: for a machine that
    lacks them. watch: as in `run_seeds`.
    """
    if supplies is not None:
        os.environ.update(supplies.environment)
    with synced_copy(job, supplies) as (here, send):
        send_now_and_then = at_most_every(SYNC_EVERY, send)

        def watch_and_send(event: WatchedEvent) -> None:
            send_now_and_then()
            watch(event)

        try:
            with refuse_exits():
                run = ResolvedRun.of(job.config, _prepared(job, supplies))
            run_seeds(run, [here], check_run(run), watch_and_send)
        except Exception as error:
            ending = GpuFullError.behind(error) or error
            write_error(here, last_line(ending))
            return ending
    return None


def _prepared(job: Job, supplies: Supplies | None) -> Dataset | None:
    """The data set that the job brings along, from this machine or the command's."""
    if job.data is None:
        return None
    return supplies.dataset(job.data) if supplies else job.data.find()


def run_seeds(
    run: ResolvedRun, jobs: Sequence[Job], partitions: dict[int, Partition], watch: Watcher, debug: bool = False
) -> None:
    """Run the jobs of one run, one seed after another, except jobs that are done by then.

    watch: gets every evaluated round, and every warning once. debug: without hosts, an error at a client is raised
    where it happens.
    """
    with ExitStack() as stack:
        watch_once = without_repeated_warnings(watch)
        opened = [stack.enter_context(open_job(job, run, partitions[job.seed], watch_once)) for job in jobs]
        left = {number: job for number, job in enumerate(opened) if not job.done}
        if not left:
            return

        def tell(number: int, event: Event) -> None:
            left[number].handle(event)

        tasks = {number: job.task for number, job in left.items()}
        with refuse_exits():
            if run.config.resources.hosts == 0 or cluster.inside_a_trial():
                resources = run.config.resources
                share = float(resources.gpus_per_host) if cluster.inside_a_trial() else 1.0
                hosts: Hosts = RayHosts.of(resources) if resources.hosts else InProcess(debug, share)
                with closing(hosts):
                    drive_seeds(replace(run, dealt=partitions), tasks, hosts, tell)
            else:
                drive_on_ray(tasks, tell)


class OpenJob:
    """A job in progress. begun: whether an earlier command left something to continue from."""

    def __init__(self, job: Job, begun: bool, watch: Watcher) -> None:
        self.job, self.begun, self.watch, self.done = job, begun, watch, False
        self.warnings: list[str] = []
        self.loggers: list[AttachedLogger] = []

    @property
    def task(self) -> SeedTask:
        """The driver's task. Its folder is absolute, because processes of an existing Ray work in another one."""
        return SeedTask(self.job.config, self.job.folder.absolute(), self.begun, self.job.pause)

    def handle(self, event: Event) -> None:
        """Handle an event of the driver."""
        match event:
            case SeedBegun():
                self._attach_loggers()
            case SeedEnded(warnings):
                self._finish(warnings)
            case SeedPaused():
                self.close_loggers("success")
            case ModelsBuilt(sizes):
                description.note(self.job.folder, models=sizes)
            case CheckpointRestored():
                catch_up(self.loggers, self.job.folder)
            case _:
                if isinstance(event, Evaluation):
                    log_records(self.loggers, event.lines, event.traces)
                self.watch(event)

    def _attach_loggers(self) -> None:
        config, folder = self.job.config, self.job.folder
        if config.loggers and not self.loggers:
            entry = self.job.entry(folder)
            self.loggers = make_loggers(config, folder, entry, resume=self.begun, warn=self.warnings.append)
        for logger in self.loggers:
            logger.log_hyperparams(config.model_dump(mode="json"))

    def _finish(self, warnings: Sequence[str]) -> None:
        folder = self.job.folder
        catch_up(self.loggers, folder)
        for logger in self.loggers:
            logger.conclude(Records(folder))
        self.close_loggers("success")
        description.note(folder, finished=description.time_now())
        # This file ends the run: anything written after it may be missing for ever.
        write_summary(Records(folder), [*warnings, *self.warnings])
        if not self.job.config.checkpoint.keep:
            checkpoint.remove(folder / "checkpoint")
        self.done = True

    def close_loggers(self, status: str) -> None:
        """Close the loggers. status: success or failed."""
        for logger in self.loggers:
            logger.finalize(status)
        self.loggers = []


@contextmanager
def open_job(job: Job, run: ResolvedRun, partition: Partition, watch: Watcher) -> Iterator[OpenJob]:
    """A job whose folder is described and locked for this command; another command that wants it waits."""
    say = lambda line: watch(Remark(line))  # noqa: E731
    with folder_locks.writable(job.folder), folder_locks.folder_in_turn(job.folder, say):
        state = run_state.state_of(job.folder, job.config)
        opened = OpenJob(job, state == "begun", watch)
        opened.done = state == "done"
        if opened.done:
            checkpoint.remove_unless_last(job.folder / "checkpoint", job.config.rounds)
        elif job.code is not None and job.code != provenance.short_fingerprint(job.config):
            # This process has other user code than the one that requested the job.
            names = ", ".join(provenance.user_names(job.config).values())
            raise ConfigError(f"the code of {names} has changed since the command began; repeat the command")
        if state == "begun":
            run_state.check_same_partition(job.folder, job.seed, partition)
            if longer_runs.shorter_run(job.folder, job.config):
                longer_runs.lengthen(job.folder, job.config)
        elif state == "new":
            if job.shorter:
                run_state.check_same_partition(job.shorter, job.seed, partition)
            description.describe_run(job.folder, run.of_seed(job.config), {job.seed: partition})
            if job.shorter:
                longer_runs.copy_progress(job.shorter, job.folder)
                opened.begun = True
        try:
            yield opened
        except ConfigError:
            if state == "new" and not _has_records(job):
                for name in description.DESCRIPTION_FILES:
                    (job.folder / name).unlink(missing_ok=True)
            raise
        finally:
            opened.close_loggers("failed")


def _has_records(job: Job) -> bool:
    """Whether there is anything to continue from."""
    kept = [job.folder / "metrics.jsonl", *(job.folder / "checkpoint").rglob("*")]
    return any(path.is_file() and path.stat().st_size > 0 for path in kept)


def without_repeated_warnings(watch: Watcher) -> Watcher:
    """A watcher that gets each warning once, because seeds of a run have many in common."""
    seen = set[str]()

    def watch_once(event: WatchedEvent) -> None:
        if isinstance(event, Remark):
            if event.text in seen:
                return
            seen.add(event.text)
        watch(event)

    return watch_once


def at_most_every(seconds: float, call: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> Any:
    """The function, except that it does nothing if called again within this many seconds."""
    last = clock()

    def call_if_due(*arguments: Any) -> None:
        nonlocal last
        if clock() - last >= seconds:
            call(*arguments)
            last = clock()

    return call_if_due


def write_error(job: Job, text: str) -> None:
    """Write a text to error.txt of the job's folder."""
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / ERROR).write_text(text + "\n")


def last_line(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, RunError):
        return str(error)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
