"""Many jobs side by side, as Ray Tune trials; what is done already is not done again."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.runtime import cluster
from fedbench.runtime.liveness import check_alive
from fedbench.studies import folder as places
from fedbench.studies.job import ERROR, Job, Outcome
from fedbench.studies.resolve import layout
from fedbench.studies.trial import Supplies, attempt, last_line, note_error, supplies_for

TRIAL_RESTARTS = 3


Watch = Callable[[dict[str, Outcome], list[str]], None]


def execute(jobs: Sequence[Job], scratch: Path, at_once: int | None, watch: Watch) -> dict[str, Outcome]:
    """Run the jobs that are not done, as many side by side as fit, and say what became of each.

    A job that fails is reported and not tried again; one whose process dies goes on from its last checkpoint. One at a
    time and without hosts they are run in this process, and Ray is not needed.
    """
    missing = [job for job in jobs if job.outcome().status != "done"]
    for job in jobs:
        if job not in missing:
            places.tidy(job.folder)
    # Two labels may stand for one run, which two trials must not make at once.
    left = list({job.folder: job for job in reversed(missing)}.values())[::-1]
    if left:
        told = lambda running: watch(_state(jobs), running)  # noqa: E731
        with room_for(left, at_once) as ray:
            if ray is None:
                _one_by_one(left, told)
            else:
                with supplies_for(ray, left) as supplies:
                    _tune(left, scratch, at_once or _room(ray, left[0].config), told, supplies)
    shutil.rmtree(scratch, ignore_errors=True)
    watch(_state(jobs), [])
    return _state(jobs)


@contextmanager
def room_for(jobs: Sequence[Job], at_once: int | None) -> Iterator[Any]:
    """Ray for the time of a block that executes these jobs; None where they need none.

    Raises ConfigError where one of them could never run.
    """
    if at_once == 1 and jobs[0].config.resources.hosts == 0:
        yield None
        return
    with cluster.connected(jobs[0].config, cpus=1) as ray:
        _check_room(ray, jobs[0].config)
        yield ray


def _one_by_one(jobs: Sequence[Job], watch: Callable[[list[str]], None]) -> None:
    for job in jobs:
        watch([job.name])
        (job.folder / ERROR).unlink(missing_ok=True)
        attempt(job)


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
    scratch: Path,
    at_once: int,
    watch: Callable[[list[str]], None],
    supplies: Supplies | None,
) -> None:
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    import ray
    from ray import tune

    # What is done is known from the runs' own folders, so Tune's state is of no use to a later start.
    shutil.rmtree(scratch, ignore_errors=True)
    by_name = {job.name: job for job in jobs}
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(_trainable(tune), jobs=by_name, supplies=supplies),
            tune.PlacementGroupFactory(bundles(jobs[0].config), strategy="PACK"),
        ),
        param_space={"job": tune.grid_search([job.name for job in jobs])},
        # A process that has done one trial takes the next: importing torch and Lightning costs more than a small run.
        tune_config=tune.TuneConfig(max_concurrent_trials=at_once, reuse_actors=True),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(scratch.absolute()),
            verbose=0,
            callbacks=[_watcher(ray, tune, watch)],
            failure_config=tune.FailureConfig(max_failures=TRIAL_RESTARTS),
            # A run keeps its own, in its own folder; Tune's would have to lie where every machine can write.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    for job in jobs:
        (job.folder / ERROR).unlink(missing_ok=True)
    results = tuner.fit()
    for result in results:
        if result.error is not None:
            note_error(by_name[result.config["job"]], last_line(result.error))


def _trainable(tune: Any) -> Any:
    class Trial(tune.Trainable):
        """Whole runs, one after another; Tune sees each as one step."""

        def setup(self, config: dict[str, Any], jobs: dict[str, Job], supplies: Supplies | None) -> None:
            self.name, self.jobs, self.supplies = config["job"], jobs, supplies

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.name = new_config["job"]
            return True

        def step(self) -> dict[str, Any]:
            return {"complete": attempt(self.jobs[self.name], self.supplies), "done": True}

    return Trial


def _watcher(ray: Any, tune: Any, watch: Callable[[list[str]], None]) -> Any:
    class Watcher(tune.Callback):
        """Tells of every trial that starts or ends, and that Ray is dead, which Tune would wait for."""

        def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
            check_alive(ray)

        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell(trials)

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell(trials)

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell(trials)

        def _tell(self, trials: list[Any]) -> None:
            watch([str(t.config["job"]) for t in trials if t.status == "RUNNING"])

    return Watcher()
