"""Runs many jobs side by side, as trials of Ray Tune; finished jobs are not run again."""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.installation import require
from fedbench.jobs import folder_locks, run_state
from fedbench.jobs.folder_sync import Supplies, supplies_for
from fedbench.jobs.gpu_memory import USUAL_MB, smallest_gpu_mb
from fedbench.jobs.gpu_shares import GpuShares, open_to_trial, takes_gpu
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import choose_hosts, this_machine
from fedbench.jobs.run_job import SYNC_EVERY, at_most_every, run_job, write_error
from fedbench.jobs.trial import trainable
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
    every, outcomes, queue = list(jobs), Outcomes(), None
    begun, later = dict[Path, Job](), list[Job]()

    def ready(added: Sequence[Job]) -> list[Job]:
        """Those of new jobs, and of those that wait for another with their run, that can begin."""
        for job in added:
            if job.outcome().status == "done":
                run_state.state_of(job.folder, job.config)
                folder_locks.remove_leftovers(job.folder, job.config.rounds)
        in_work: set[Path] = {job.folder for job in queue.running.values()} if queue else set()
        now, later[:] = to_begin([*later, *added], begun, in_work)
        return now

    def further() -> Sequence[Job]:
        while True:
            added = list(more())
            every.extend(added)
            if (left := ready(added)) or not added:
                return left

    left = ready(every) or list(further())
    if left:
        with ray_for(left[0].config, trials) as ray:
            tell: OnJobProgress = lambda progress: watch(outcomes.of(every), progress)  # noqa: E731
            if ray is None:
                while left:
                    job = left.pop(0)
                    tell({job.name: 0.0})
                    job.forget_failure()
                    run_job(job, watch=at_most_every(SYNC_EVERY, partial(_tell_round, tell, job)))
                    left = left or list(further())
            else:
                shares = shares or GpuShares()
                has_room = begin_shares(ray, shares, every, left, trials, grows)
                with supplies_for(ray, every) as supplies:
                    shutil.rmtree(scratch, ignore_errors=True)  # the jobs' folders record what is done
                    # Of GPUs trials may have shares, so that the cores decide.
                    cores = {"CPU": need_of(left[0].config).get("CPU", 0)}
                    most = trials or _fitting(ray.cluster_resources(), cores)
                    while left:
                        queue = job_queue(left, further, shares, has_room)
                        tuner = _tuner(
                            queue,
                            tune_folder or scratch,
                            most,
                            [progress_callback(tell), *(_record_callbacks() if tune_folder else [])],
                            supplies,
                        )
                        left, most = run_queue(tuner, queue), max(1, most // 2)
                        left = left or (list(further()) if queue.running else [])
    shutil.rmtree(scratch, ignore_errors=True)
    watch(outcomes.of(every), {})
    return outcomes.of(every)


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


def to_begin(jobs: Sequence[Job], begun: dict[Path, Job], in_work: Set[Path]) -> tuple[list[Job], list[Job]]:
    """The jobs to begin now, each in a folder of its own, and those whose run another one has in work.

    begun: by folder, the job that was begun last; those to begin are added. in_work: folders. What has failed is not
    begun again. A job that does not pause includes one that does.
    """
    first = dict[Path, Job]()
    for job in jobs:
        before = begun.get(job.folder)
        if has_ended(job) or (before is not None and before.outcome().status == "failed"):
            continue
        if job.folder not in first or (first[job.folder].pause and not job.pause):
            first[job.folder] = job
    now = [job for folder, job in first.items() if folder not in in_work]
    begun |= {job.folder: job for job in now}
    return now, [job for job in jobs if job.folder in first and job.folder in in_work]


def has_ended(job: Job) -> bool:
    """Whether nothing is left to do: it is done, or has paused."""
    return job.outcome().status in ("done", "stopped")


@contextmanager
def ray_for(trial: Config, trials: int | None) -> Iterator[Any]:
    """Ray for a block that runs trials like this one; None if they need none.

    Raises ConfigError if a trial could never run.
    """
    if not needs_ray(trial, trials):
        yield None
        return
    require("ray", "use --hosts 0 --trials 1")
    with cluster.connect(trial, cpus=1) as ray:
        _require_room(trial, ray.cluster_resources())
        yield ray


def needs_ray(trial: Config, trials: int | None) -> bool:
    """Whether trials like this one run by Ray: not if one runs at a time, in this process."""
    return trials != 1 or trial.resources.hosts != 0


def check_room(trial: Config, trials: int | None) -> None:
    """Raises ConfigError if a trial could never run on this machine; a cluster is asked when the trials begin."""
    if needs_ray(trial, trials) and trial.resources.address == "local" and not cluster.is_joined():
        _require_room(trial, this_machine().machines[0])


def _require_room(trial: Config, total: Mapping[str, float]) -> None:
    for kind, amount in need_of(trial).items():
        if total.get(kind, 0) < amount - 1e-9:
            raise ConfigError(
                f"resources: one trial needs {amount:g} {kind} ({plural(int(trial.resources.hosts), 'host')}), "
                f"there are {total.get(kind, 0):g}: lower --hosts, --cpus-per-host or --gpus-per-host"
            )


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


def bundles(config: Config) -> list[dict[str, float]]:
    """The resources of one trial: its driver, which only waits, and its hosts; or one core for a run without hosts."""
    resources = config.resources
    gpu = {"GPU": float(resources.gpus_per_host)} if resources.gpus_per_host else {}
    if resources.hosts == 0:
        return [{"CPU": resources.cpus_per_host, **gpu}]
    return [{}] + [{"CPU": resources.cpus_per_host, **gpu}] * int(resources.hosts)


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


def need_of(config: Config) -> dict[str, float]:
    """The sum of a trial's resources, by kind."""
    need: dict[str, float] = {}
    for bundle in bundles(config):
        for kind, amount in bundle.items():
            need[kind] = need.get(kind, 0) + amount
    return need


def _fitting(total: dict[str, float], need: dict[str, float]) -> int:
    return max(1, int(min((total.get(kind, 0) / amount + 1e-6 for kind, amount in need.items() if amount), default=1)))


def describe_cluster(config: Config) -> str | None:
    """A cluster's machines, and how many trials of this configuration fit; None if there is this machine only."""
    if config.resources.address == "local":
        return None
    trial = config.model_copy(deep=True)
    shares_gpu = open_to_trial(trial)
    choose_hosts(trial)
    with cluster.connect(trial) as ray:
        need = need_of(trial)
        if shares_gpu:
            need.pop("GPU", None)
        needs = " and ".join(f"{amount:g} {kind}" for kind, amount in need.items())
        needs += " and a share of a GPU" if shares_gpu and trial.resources.gpus_per_host else ""
        count, machines = _fitting(ray.cluster_resources(), need), cluster.describe_machines(ray)
    most = "at most " if shares_gpu and trial.resources.gpus_per_host else ""
    return (
        f"cluster: {machines}; room for {most}{plural(count, 'trial')} of {needs} at once; results come to this machine"
    )


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
