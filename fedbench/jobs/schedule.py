"""Many jobs side by side, as Ray Tune trials; what is done already is not done again."""

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs import run_folder
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import layout
from fedbench.jobs.trial import trainable
from fedbench.jobs.trial_job import Supplies, attempt, last_line, note_error, paced, supplies_for
from fedbench.jobs.tune_callbacks import PACE, More, Running, Told, halving, name_of, prepared, queue, watcher
from fedbench.runtime.driver import Event
from fedbench.runtime.ray import cluster
from fedbench.silence import silenced

TRIAL_RESTARTS = 3
ENDED = ("done", "stopped")


Watch = Callable[[dict[str, Outcome], Running], None]
"""Told what became of every job so far, and what runs."""


def execute(
    jobs: Sequence[Job],
    scratch: Path,
    at_once: int | None,
    watch: Watch,
    more: More = tuple,
    early: bool = False,
    kept: Path | None = None,
) -> dict[str, Outcome]:
    """Run the jobs that are not done, as many side by side as fit, and say what became of each.

    A job that fails is reported and not tried again; one whose process dies goes on from its last checkpoint. One at a
    time and without hosts they are run in this process, and Ray is not needed. more: asked for further jobs when there
    is room. early: trials that fall behind are stopped. kept: where Tune's own records of the trials are to stay.
    """
    every = list(jobs)

    def further() -> Sequence[Job]:
        while added := list(more()):
            every.extend(added)
            if left := [job for job in added if not _ended(job, early)]:
                return left
        return []

    for job in every:
        if job.outcome().status == "done":
            run_folder.state_of(job.folder, job.config)
            run_folder.tidy(job.folder)
    # Two labels may stand for one run, which two trials must not make at once.
    left = list({job.folder: job for job in reversed(every) if not _ended(job, early)}.values())[::-1]
    left = left or list(further())
    if left:
        with room_for(left, at_once, early) as ray:
            told: Told = lambda running: watch(_state(every), running)  # noqa: E731
            if ray is None:
                _one_by_one(left, further, told)
            else:
                room = at_once or _room(ray, left[0].config)
                rule = halving([job for job in every if _ended(job, early)]) if early else None
                with supplies_for(ray, every) as supplies:
                    _tune(left, further, rule, scratch, kept, room, told, supplies)
    shutil.rmtree(scratch, ignore_errors=True)
    watch(_state(every), {})
    return _state(every)


def _ended(job: Job, early: bool) -> bool:
    """Whether nothing is left to do: what was stopped goes on where nothing is stopped any more."""
    return job.outcome().status in (ENDED if early else ENDED[:1])


@contextmanager
def room_for(jobs: Sequence[Job], at_once: int | None, early: bool = False) -> Iterator[Any]:
    """Ray for the time of a block that executes these jobs; None where they need none. early: trials may be stopped.

    Raises ConfigError where one of them could never run.
    """
    if at_once == 1 and jobs[0].config.resources.hosts == 0 and not early:
        yield None
        return
    with cluster.connected(jobs[0].config, cpus=1) as ray:
        _check_room(ray, jobs[0].config)
        yield ray


def _one_by_one(jobs: Sequence[Job], more: More, watch: Told) -> None:
    waiting = list(jobs)
    while waiting:
        job = waiting.pop(0)
        watch({job.name: 0.0})
        job.go_on()
        attempt(job, watch=paced(partial(_tell, job, watch), PACE))
        waiting += [] if waiting else more()


def _tell(job: Job, watch: Told, event: Event) -> None:
    if "lines" in event:
        watch({job.name: event["round"] / job.config.rounds})


def _state(jobs: Sequence[Job]) -> dict[str, Outcome]:
    return {job.name: job.outcome() for job in jobs}


def bundles(config: Config) -> list[dict[str, float]]:
    """What one trial reserves: its driver, which only waits, and its hosts; or one core for a run without hosts."""
    resources = config.resources
    gpu = {"GPU": float(resources.gpus_per_host)} if resources.gpus_per_host else {}
    if resources.hosts == 0:
        return [{"CPU": resources.cpus_per_host, **gpu}]
    return [{}] + [{"CPU": resources.cpus_per_host, **gpu}] * int(resources.hosts)


def _need(config: Config) -> dict[str, float]:
    need: dict[str, float] = {}
    for bundle in bundles(config):
        for kind, amount in bundle.items():
            need[kind] = need.get(kind, 0) + amount
    return need


def _check_room(ray: Any, config: Config) -> None:
    total = ray.cluster_resources()
    for kind, amount in _need(config).items():
        if total.get(kind, 0) < amount - 1e-9:
            raise ConfigError(
                f"resources: one trial needs {amount:g} {kind} ({config.resources.hosts} hosts), there are "
                f"{total.get(kind, 0):g}: lower --hosts, --cpus-per-host or --gpus-per-host"
            )


def _room(ray: Any, config: Config) -> int:
    """How many trials fit at once."""
    total = ray.cluster_resources()
    return max(1, int(min(total.get(kind, 0) / amount for kind, amount in _need(config).items() if amount)))


def where(config: Config) -> str | None:
    """What a cluster has, and how trials of this configuration lie on it; None where there is this machine only."""
    if config.resources.address == "local":
        return None
    trial = config.model_copy(deep=True)
    if trial.resources.hosts == "auto":
        trial.resources.hosts = 0
    layout(trial)
    with cluster.connected(trial) as ray:
        needs = " and ".join(f"{amount:g} {kind}" for kind, amount in _need(trial).items())
        count = _room(ray, trial)
        found = cluster.described(ray)
    return f"cluster: {found}; room for {count} trials of {needs} at once; results come to this machine"


def _tune(
    jobs: Sequence[Job],
    more: More,
    scheduler: Any,
    scratch: Path,
    kept: Path | None,
    at_once: int,
    watch: Told,
    supplies: Supplies | None,
) -> None:
    tune = prepared()
    # What is done is known from the runs' own folders, so Tune's state is of no use to a later start.
    shutil.rmtree(scratch, ignore_errors=True)
    storage = kept or scratch
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(trainable(tune), supplies=supplies),
            tune.PlacementGroupFactory(bundles(jobs[0].config), strategy="PACK"),
        ),
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=queue(jobs, more, Job.go_on),
            scheduler=scheduler,
            num_samples=-1,
            trial_name_creator=name_of,
            trial_dirname_creator=name_of,
            max_concurrent_trials=at_once,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=f"{len(list(storage.glob('*'))) + 1}",
            storage_path=str(storage.absolute()),
            verbose=0,
            # A run keeps its own, in its own folder; Tune's would have to lie where every machine can write.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            callbacks=[watcher(tune, watch), *(recorders() if kept else [])],
            failure_config=tune.FailureConfig(max_failures=TRIAL_RESTARTS),
        ),
    )
    # Among Tune's words are stack traces of processes that were killed; what matters is said here.
    with silenced("ray.tune", logging.CRITICAL):
        results = tuner.fit()
    for result in results:
        if result.error is not None:
            note_error(result.config["job"], last_line(result.error))


def recorders() -> list[Any]:
    """What writes Tune's records of trials: for `ResultGrid` and for TensorBoard."""
    from ray.tune.logger import JsonLoggerCallback, TBXLoggerCallback

    return [JsonLoggerCallback(), TBXLoggerCallback()]
