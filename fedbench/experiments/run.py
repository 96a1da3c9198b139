"""One run: one method, one data set, one partition, one or more seeds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import Config, folder_name
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.experiments import folder as places
from fedbench.experiments.resolve import check, resolve
from fedbench.results.loggers import catch_up, log_records, make_loggers
from fedbench.results.records import RunFolder, summarise, write_json_atomically
from fedbench.runtime import checkpoint
from fedbench.runtime.actors import DriverActor, reserve, with_hosts
from fedbench.runtime.driver import Event, drive
from fedbench.runtime.hosts import InProcess

DRIVER_RESTARTS = 5
Watcher = Callable[[Event], None]


@dataclass(frozen=True)
class Result:
    """What a run left. The frames are read when they are asked for."""

    folder: Path
    config: Config

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def summary(self) -> dict[str, Any]:
        return RunFolder(self.folder).summary()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per seed, round and evaluation point."""
        return RunFolder(self.folder).metrics()

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per seed, round, client and evaluation point."""
        return RunFolder(self.folder).clients()

    @cached_property
    def traces(self) -> pd.DataFrame:
        """One row per seed, round, client and traced scalar."""
        return RunFolder(self.folder).traces()


def run(
    config: Config,
    *,
    resume: bool = False,
    experiment: str = "run",
    job_type: str = "run",
    watch: Watcher | None = None,
    report: bool = True,
) -> Result:
    """Run what was asked, or go on with it, and return its result; a finished run is not run again.

    resume: refuse to start from nothing. watch: told of every evaluated round (`Progress.update` fits).
    Raises ConfigError, before round 1, for what cannot be run.
    """
    config, dataset = resolve(config)
    place = places.take(config, _experiment(experiment), resume)
    result = Result(place.folder, config)
    with places.alone_in(result.folder):
        # Whoever was in the folder may have changed it.
        place = replace(places.take(config, experiment, resume), made=place.made)
        if not place.done:
            with places.nothing_left(place):
                partitions = check(config, dataset)
                if place.begun:
                    places.check_same_partitions(place.folder, partitions)
                else:
                    places.describe(place.folder, config, dataset, partitions)
                told = watch or (lambda event: None)
                warnings = _with_loggers(config, dataset, place.folder, place.begun, job_type, told)
            write_json_atomically(place.folder / "summary.json", summarise(RunFolder(place.folder), warnings))
            places.finish(place.folder)
            checkpoint.remove(place.folder / "checkpoint")
        if report and not (place.done and result.report.exists()):
            from fedbench.report import make_report

            make_report(place.folder)
    return result


def _experiment(name: str) -> str:
    try:
        return folder_name(name)
    except ValueError as error:
        raise ConfigError(f"experiment = {name!r}: {error}") from None


def _with_loggers(
    config: Config, dataset: Dataset, folder: Path, resume: bool, job_type: str, watch: Watcher
) -> list[str]:
    """The rounds, mirrored to the loggers that were asked for."""
    more: list[str] = []
    run_id = places.identity(config)
    attach = lambda: make_loggers(config, folder, run_id, job_type, resume=resume, warn=more.append)  # noqa: E731
    loggers = attach() if config.loggers else []
    for logger in loggers:
        logger.log_hyperparams(config.model_dump(mode="json"))

    def on_event(event: Event) -> None:
        if "lines" in event:
            log_records(loggers, event["lines"], event["traces"])
        if "restored" in event:
            catch_up(loggers, folder)
        else:
            watch(event)

    status = "failed"
    try:
        warnings = _rounds(config, dataset, folder, resume, on_event)
        catch_up(loggers, folder)
        status = "success"
    finally:
        for logger in loggers:
            logger.finalize(status)
    return [*warnings, *more]


def _rounds(config: Config, dataset: Dataset, folder: Path, resume: bool, on_event: Watcher) -> list[str]:
    if config.resources.hosts == 0:
        return drive(config, folder, InProcess(dataset), dataset, on_event, resume)
    from fedbench.runtime import cluster

    if cluster.inside_a_trial():
        return with_hosts(config, folder, on_event, resume, dataset)
    with cluster.connected(config):
        # Absolute: the processes of a Ray that was there before work in another directory.
        return _with_driver_actor(config, folder.absolute(), resume, on_event)


def _with_driver_actor(config: Config, folder: Path, resume: bool, on_event: Watcher) -> list[str]:
    """Run the driver actor; where it dies, make it anew and go on from the last checkpoint.

    The hosts' places are reserved here: Ray keeps a group that an actor asked for until the whole job ends.
    """
    import ray
    from ray.util import remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    resources = config.resources
    group = reserve(int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host))
    inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    try:
        for _ in range(DRIVER_RESTARTS):
            actor = ray.remote(DriverActor).options(num_cpus=0, max_concurrency=2, scheduling_strategy=inside).remote()
            try:
                return _watched(ray, actor, actor.run.remote(config, folder, resume), on_event)
            except ray.exceptions.RayActorError:
                on_event({"note": "the driver died: going on from the last checkpoint"})
                resume = True
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, ConfigError):
                    raise error.cause from None
                raise
            finally:
                ray.kill(actor)
    finally:
        remove_placement_group(group)
    raise RuntimeError(f"the driver died {DRIVER_RESTARTS} times: is the machine's memory exhausted?")


def _watched(ray: Any, actor: Any, done: Any, on_event: Watcher) -> list[str]:
    finished: list[Any] = []
    while not finished:
        finished, _ = ray.wait([done], timeout=0.3)
        for event in ray.get(actor.events.remote()):
            on_event(event)
    return ray.get(done)
