"""Callbacks for Ray Tune: they choose the next job and report progress."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedbench.jobs.gpu_shares import GpuShares
from fedbench.jobs.job import Job
from fedbench.jobs.run_job import at_most_every, last_line, write_error
from fedbench.runtime import retries
from fedbench.runtime.ray.liveness import MEMORY_REMEDY, check_alive

LONGEST_TRIAL_NAME = 100
"""Maximum length of a trial's name."""
REPORT_EVERY = 20.0
"""Seconds between two reports of the progress of running trials."""
MoreJobs = Callable[[], Sequence[Job]]
JobProgress = Mapping[str, float]
"""The share of its rounds that a running job has done, by the job's name."""
OnJobProgress = Callable[[JobProgress], None]
TUNE_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Tune's own handler would let a study continue with the trials so far
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def import_tune() -> Any:
    """Ray Tune, after setting the environment variables that it reads."""
    for name, value in TUNE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from ray import tune

    return tune


def trial_name(trial: Any) -> str:
    """The name of a trial in TensorBoard and Tune."""
    return re.sub(r"[^\w.,=+-]+", "-", f"{trial.config['job'].name}"[:LONGEST_TRIAL_NAME]) + f"-{trial.trial_id}"


HasRoom = Callable[[Job, Sequence[Job]], bool]
"""Whether a job has room beside running ones."""


def job_queue(
    jobs: Sequence[Job], more: MoreJobs, shares: GpuShares, has_room: HasRoom = lambda job, running: True
) -> Any:
    """A searcher of Tune that hands out jobs: first the given ones, then further ones when there is room.

    A job whose share of a GPU was too small comes back with a larger one.
    """
    from ray.tune.search import Searcher

    class Jobs(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self.waiting = list(jobs)
            self.running: dict[str, Job] = {}
            self.may_grow = True

        def suggest(self, trial_id: str) -> Any:
            if not self.waiting and self.may_grow:
                self.waiting += more()
                self.may_grow = bool(self.waiting)  # or when a running job has ended
            if not self.waiting:
                return None if self.running else Searcher.FINISHED
            job = shares.with_share(self.waiting[0])
            if not has_room(job, [*self.running.values()]):
                return None
            del self.waiting[0]
            self.running[trial_id] = job
            job.forget_failure()
            return {"job": job, "role": job.role, "method": job.label, "seed": job.seed, **job.values}

        def on_trial_result(self, trial_id: str, result: Any) -> None:
            """Takes note of the memory that it takes by then."""
            shares.learn(self.running[trial_id])

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """Repeats a job whose GPU was full; other outcomes are known from its folder, or noted there."""
            job = self.running.pop(trial_id)
            self.may_grow = True
            shares.learn(job, ended=True)
            if result and result.get("gpu_full") and (again := shares.after_full(job)) is not None:
                self.waiting.insert(0, again)
            elif not error and job.outcome().status == "missing":
                write_error(job, "it ended without a result: is the disk full?")

        def save(self, checkpoint_path: str) -> None:
            """Does nothing, for the same reason."""

        def restore(self, checkpoint_path: str) -> None:
            """Does nothing, for the same reason."""

    return Jobs()


def trials_in_order() -> Any:
    """A scheduler of Tune that lets trials begin in their order, each in a process that is free, or else in a new one.

    Tune's own gives a process that is free to the first trial that waits, also if a new one is being started for that,
    and then drops the new one: where runs are shorter than the start of a process, one process would run them all.
    """
    from ray.tune.schedulers import FIFOScheduler

    class InOrder(FIFOScheduler):
        def choose_trial_to_run(self, tune_controller: Any) -> None:
            """None: without a choice of the scheduler, Tune takes trials that no process is started for."""

    return InOrder()


def progress_callback(on_progress: OnJobProgress) -> Any:
    """A callback of Tune that reports the progress of trials: when one starts or ends, and at intervals.

    It also notes why a trial ended that Tune does not start again, and detects a dead Ray, for which Tune would wait
    for ever.
    """
    import ray

    import_tune()
    from ray.tune import Callback

    class ProgressCallback(Callback):
        def __init__(self) -> None:
            self.over: dict[str, float] = {}
            self.tell_now_and_then = at_most_every(REPORT_EVERY, self._tell)

        def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
            check_alive(ray)

        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell(trials)

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            job = trial.config["job"]
            self.over[trial.trial_id] = result.get("round", 0) / job.last
            self.tell_now_and_then(trials)

        def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            job = trial.config["job"].name
            logging.getLogger("fedbench").warning("the process of %s died: continuing from its last checkpoint", job)

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell([other for other in trials if other is not trial])

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            write_error(trial.config["job"], reason_of_end(trial.get_pickled_error() or trial.get_error()))
            self._tell([other for other in trials if other is not trial])

        def _tell(self, trials: list[Any]) -> None:
            running = [trial for trial in trials if trial.status == "RUNNING"]
            on_progress({trial.config["job"].name: self.over.get(trial.trial_id, 0.0) for trial in running})

    return ProgressCallback()


def reason_of_end(error: Any) -> str:
    """Why a trial has ended, as one line: its job notes its own errors, so mostly its process was killed.

    error: as Tune keeps it, which for a process that Ray ended to save memory is a text.
    """
    from ray.exceptions import OutOfMemoryError, RayActorError

    if not isinstance(error, Exception) or isinstance(error, RayActorError | OutOfMemoryError):
        return f"its process died {retries.TRIAL + 1} times: is the machine's memory exhausted? {MEMORY_REMEDY}"
    return last_line(error)
