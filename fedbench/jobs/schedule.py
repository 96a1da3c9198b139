"""Runs many jobs side by side, as trials of Ray Tune; finished jobs are not run again."""

import logging
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from fedbench.jobs.folder_sync import Supplies, supplies_for
from fedbench.jobs.gpu_memory import USUAL_MB, smallest_gpu_mb
from fedbench.jobs.gpu_shares import GpuShares, takes_gpu
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.pending import PendingJobs
from fedbench.jobs.run_job import SYNC_EVERY, at_most_every, run_job, write_error
from fedbench.jobs.trial import trainable
from fedbench.jobs.trial_resources import bundles, how_many_fit, need_of, ray_for
from fedbench.jobs.tune_callbacks import (
    HasRoom,
    JobProgress,
    MoreJobs,
    OnJobProgress,
    import_tune,
    job_queue,
    progress_callback,
    trial_name,
    trials_in_order,
)
from fedbench.results.events import Evaluation, WatchedEvent
from fedbench.runtime import retries
from fedbench.runtime.ray import cluster
from fedbench.silence import silence_logger

log = logging.getLogger("fedbench")

OUT_OF_MEMORY = (
    "Ray ended its process to save memory although no other trial ran: free some memory, or take a smaller model or "
    "train.batch_size; the same command continues from the last checkpoint"
)

Watch = Callable[[dict[str, Outcome], JobProgress], None]
"""Gets the outcome of every job so far by its title, and the progress of running jobs by name."""


def run_jobs(
    jobs: Sequence[Job],
    scratch: Path,
    trials: int | None,
    watch: Watch,
    more: MoreJobs = tuple,
    tune_folder: Path | None = None,
    shares: GpuShares | None = None,
    grows: bool = False,
) -> dict[str, Outcome]:
    """Run the jobs that are not done, as many side by side as fit; returns the outcome of each by its title.

    A failed job is reported and not tried again, unless its share of a GPU was too small; a job whose process dies
    continues from its last checkpoint. One at a time and without hosts, jobs run in this process, and Ray is not
    needed. more: called for further jobs when there is room. Of several jobs in one folder one runs at a time.
    tune_folder: for Tune's own records of the trials. shares: what earlier stages of a study have learned about shares
    of GPUs. grows: whether there may be more jobs at a time than at first.
    """
    pending, outcomes = PendingJobs(jobs, more), Outcomes()

    def tell(progress: JobProgress) -> None:
        watch(outcomes.of(pending.every), progress)

    if left := pending.first():
        with ray_for(left[0].config, trials) as ray:
            if ray is None:
                _run_here(left, pending, tell)
            else:
                shares = shares or GpuShares()
                has_room = begin_shares(ray, shares, pending.every, left, trials, grows)
                with supplies_for(ray, pending.every) as supplies:
                    shutil.rmtree(scratch, ignore_errors=True)  # the jobs' folders record what is done
                    callbacks = [progress_callback(tell), *(_record_callbacks() if tune_folder else [])]
                    # Of GPUs trials may have shares, so that the cores decide.
                    cores = {"CPU": need_of(left[0].config).get("CPU", 0)}
                    _run_by_tune(
                        left,
                        pending,
                        partial(job_queue, more=pending.further, shares=shares, has_room=has_room),
                        partial(_tuner, storage=tune_folder or scratch, callbacks=callbacks, supplies=supplies),
                        trials or how_many_fit(ray.cluster_resources(), cores),
                    )
    shutil.rmtree(scratch, ignore_errors=True)
    tell({})
    return outcomes.of(pending.every)


def _run_here(left: list[Job], pending: PendingJobs, tell: OnJobProgress) -> None:
    """Run jobs one by one in this process, and those that follow from them."""
    while left:
        job = left.pop(0)
        tell({job.name: 0.0})
        job.forget_failure()
        run_job(job, watch=at_most_every(SYNC_EVERY, partial(_tell_round, tell, job)))
        left = left or pending.further()


def _run_by_tune(
    left: Sequence[Job],
    pending: PendingJobs,
    new_queue: Callable[[Sequence[Job]], Any],
    new_tuner: Callable[..., Any],
    most_at_once: int,
) -> None:
    """Run jobs as trials, and those that follow from them: half as many at a time when the memory was too small."""
    while left:
        queue = new_queue(left)
        pending.running = queue.running
        left, most_at_once = run_queue(new_tuner(queue, most_at_once=most_at_once), queue), max(1, most_at_once // 2)
        left = left or (pending.further() if queue.running else [])


def run_queue(tuner: Any, queue: Any) -> list[Job]:
    """Run the jobs of a queue; returns those that are left if Ray has ended a trial to save memory, which ends Tune.

    Of several that ran at that time all are left, to run with fewer at a time; one that ran alone has failed, and notes
    why.
    """
    from ray.exceptions import OutOfMemoryError

    try:
        # Tune prints stack traces of killed processes; the relevant part is logged here.
        with silence_logger("ray.tune", logging.CRITICAL):
            tuner.fit()
        return []
    except RuntimeError as error:
        if not isinstance(error.__cause__, OutOfMemoryError) or not queue.running:
            raise
    running = [job for job in queue.running.values() if job.outcome().status == "missing"]
    if len(running) > 1:
        log.warning("Ray ended a trial to save memory: continuing with fewer trials at a time")
        return [*running, *queue.waiting]
    for job in running:
        write_error(job, OUT_OF_MEMORY)
    return [*queue.waiting]


def _tell_round(on_progress: OnJobProgress, job: Job, event: WatchedEvent) -> None:
    if isinstance(event, Evaluation):
        on_progress({job.name: event.round / job.last})


class Outcomes:
    """The outcomes of jobs. What is done stays done, and its files are read once."""

    def __init__(self) -> None:
        self._done: dict[str, Outcome] = {}

    def of(self, jobs: Sequence[Job]) -> dict[str, Outcome]:
        outcomes = {job.title: self._done.get(job.title) or job.outcome() for job in jobs}
        self._done |= {name: outcome for name, outcome in outcomes.items() if outcome.status == "done"}
        return outcomes


def begin_shares(
    ray: Any, shares: GpuShares, every: Sequence[Job], left: Sequence[Job], trials: int | None, grows: bool
) -> HasRoom:
    """Prepare the choice of shares of GPUs for the jobs that are left; returns whether a job has room beside others.

    every: all jobs so far. grows: whether there may be more at a time than are left now.
    """
    if takes_gpu(left[0]):
        machines = [node["Resources"] for node in cluster.alive(ray)]
        most = min(trials or inf, inf if grows else len(left))
        chosen = any(job.shares_gpu for job in left)
        shares.begin(machines, smallest_gpu_mb(ray, cluster.alive(ray)) if chosen else USUAL_MB, left[0], most)
        for job in every:
            shares.learn(job)
        shares.with_share(left[0])
    total = dict(ray.cluster_resources())

    def has_room(job: Job, running: Sequence[Job]) -> bool:
        if trials is not None or not running:  # Tune counts those, and more machines may be started for them
            return True
        needs = [need_of(other.config) for other in (job, *running)]
        return all(sum(need.get(kind, 0) for need in needs) <= total.get(kind, 0) + 1e-3 for kind in needs[0])

    return has_room


def _tuner(
    queue: Any,
    storage: Path,
    most_at_once: int,
    callbacks: list[Any],
    supplies: Supplies | None,
) -> Any:
    """Ray Tune's `Tuner` whose trials are the jobs of a queue."""
    tune = import_tune()

    def resources(config: dict[str, Any]) -> Any:
        return tune.PlacementGroupFactory(bundles(config["job"].config), strategy="PACK")

    return tune.Tuner(
        tune.with_resources(tune.with_parameters(trainable(tune), supplies=supplies), resources),
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=queue,
            scheduler=trials_in_order(),
            num_samples=-1,
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
            max_concurrent_trials=most_at_once,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{len(list(storage.glob('*'))) + 1}",
            storage_path=str(storage.absolute()),
            verbose=0,
            # A job keeps checkpoints in its own folder; Tune's would need a folder where every machine can write.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            callbacks=callbacks,
            failure_config=tune.FailureConfig(max_failures=retries.TRIAL),
        ),
    )


def _record_callbacks() -> list[Any]:
    """Callbacks that write Tune's records of trials: for `ResultGrid` and for TensorBoard."""
    from ray.tune.logger import JsonLoggerCallback, TBXLoggerCallback

    return [JsonLoggerCallback(), TBXLoggerCallback()]
