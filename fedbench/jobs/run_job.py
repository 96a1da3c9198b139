"""Jobs that are worked on: one after another, in this process or by a driver actor; their loggers and summaries."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.jobs import description, provenance, run_folder
from fedbench.jobs.job import Job
from fedbench.results.loggers import AttachedLogger, catch_up, log_records, make_loggers
from fedbench.results.reader import Records
from fedbench.results.summary import conclude
from fedbench.runtime import checkpoint
from fedbench.runtime.drive import SeedTask, drive_all
from fedbench.runtime.driver import Event
from fedbench.runtime.hosts import InProcess
from fedbench.runtime.ray import cluster
from fedbench.runtime.ray.driver_actor import DriverActor, with_hosts
from fedbench.runtime.ray.liveness import RayLostError, check_alive, check_node, outliving
from fedbench.runtime.ray.placement_groups import PATIENCE, reserve
from fedbench.runtime.resolved import ResolvedRun
from fedbench.user_code import exits_refused

DRIVER_RESTARTS = 5
LOOK, SILENCE = 0.3, 20.0
"""Seconds between two looks at the driver, and until it is asked whether its machine is there at all."""
Watcher = Callable[[Event], None]


def perform(
    jobs: Sequence[Job], run: ResolvedRun, partitions: dict[int, Partition], watch: Watcher, debug: bool = False
) -> None:
    """Work on jobs that are the seeds of one run, one after another; those that are done by then are left out.

    watch: told of every evaluated round and of every warning, the same one once. debug: without hosts, what fails at a
    client is raised where it happens.
    """
    told, said = watch, set[str]()

    def once(event: Event) -> None:
        if event.get("warning") not in said:
            said.update([event["warning"]] if "warning" in event else [])
            told(event)

    with ExitStack() as stack:
        attempts = [stack.enter_context(attempted(job, run, partitions[job.seed], once)) for job in jobs]
        attempts = [attempt for attempt in attempts if not attempt.ended]
        if attempts:
            with exits_refused():
                _rounds(attempts, run, debug)


class Attempt:
    """A job that is worked on. begun: whether an earlier attempt left something to go on with."""

    def __init__(self, job: Job, begun: bool, watch: Watcher) -> None:
        self.job, self.begun, self.watch, self.ended = job, begun, watch, False
        self.warnings: list[str] = []
        self.loggers: list[AttachedLogger] = []

    def told(self, event: Event) -> None:
        """Of what the driver does."""
        if "begun" in event:
            self._attach()
        elif "ended" in event:
            self._end(event["ended"])
        elif "restored" in event:
            catch_up(self.loggers, self.job.folder)
        else:
            if "lines" in event:
                log_records(self.loggers, event["lines"], event["traces"])
            self.watch(event)

    def _attach(self) -> None:
        config, folder = self.job.config, self.job.folder
        if config.loggers and not self.loggers:
            entry = self.job.entry(folder)
            self.loggers = make_loggers(config, folder, entry, resume=self.begun, warn=self.warnings.append)
        for logger in self.loggers:
            logger.log_hyperparams(config.model_dump(mode="json"))

    def _end(self, warnings: list[str]) -> None:
        folder = self.job.folder
        catch_up(self.loggers, folder)
        for logger in self.loggers:
            logger.conclude(Records(folder))
        self.close("success")
        description.finish(folder)
        # The run is over by this file: what is written after it may be missing for ever.
        conclude(Records(folder), [*warnings, *self.warnings])
        checkpoint.remove(folder / "checkpoint")
        self.ended = True

    def close(self, status: str) -> None:
        for logger in self.loggers:
            logger.finalize(status)
        self.loggers = []


@contextmanager
def attempted(job: Job, run: ResolvedRun, partition: Partition, watch: Watcher) -> Iterator[Attempt]:
    """A job's folder for this command alone, described; who wants the job meanwhile waits for its end."""
    with run_folder.made(job.folder), _alone_in(job.folder, watch):
        state = run_folder.state_of(job.folder, job.config)
        attempt = Attempt(job, state == "begun", watch)
        attempt.ended = state == "done"
        if not attempt.ended:
            _check_code(job)
        if attempt.ended:
            checkpoint.remove(job.folder / "checkpoint")
        if state == "begun":
            run_folder.check_same_partitions(job.folder, {job.seed: partition})
        elif state == "new":
            description.describe(job.folder, run.of_seed(job.config), {job.seed: partition})
        try:
            yield attempt
        except ConfigError:
            if state == "new" and not _has_begun(job):
                for name in description.FILES:
                    (job.folder / name).unlink(missing_ok=True)
            raise
        finally:
            attempt.close("failed")


def _check_code(job: Job) -> None:
    """Raises ConfigError where this process has other code of the user's than the one that asked for the job."""
    if job.code is not None and job.code != provenance.short_print(job.config):
        names = ", ".join(provenance.own_names(job.config).values())
        raise ConfigError(f"the code of {names} has changed since the command began; give it again")


@contextmanager
def _alone_in(folder: Path, watch: Watcher) -> Iterator[None]:
    """Keep other commands out of a folder, once the one that is at work there has ended, which is said."""
    with ExitStack() as stack:
        try:
            stack.enter_context(run_folder.alone_in(folder, patience=0))
        except ConfigError:
            watch({"warning": f"{folder}: another command is at work here, whose end is waited for"})
            stack.enter_context(run_folder.alone_in(folder, patience=inf))
        yield


def _has_begun(job: Job) -> bool:
    """Whether there is anything that the same command may go on from."""
    kept = [job.folder / "metrics.jsonl", *(job.folder / "checkpoint").rglob("*")]
    return any(path.is_file() and path.stat().st_size > 0 for path in kept)


def _rounds(attempts: Sequence[Attempt], run: ResolvedRun, debug: bool) -> None:
    if run.config.resources.hosts == 0:
        with closing(InProcess(debug)) as hosts:
            drive_all(run, _tasks(attempts), hosts, partial(_tell, attempts))
    elif cluster.inside_a_trial():
        with_hosts(_tasks(attempts), partial(_tell, attempts), run)
    else:
        outliving(partial(_on_ray, attempts), partial(_warn, attempts[0]))


def _warn(attempt: Attempt, line: str) -> None:
    attempt.watch({"warning": line})


def _on_ray(attempts: Sequence[Attempt]) -> None:
    """The attempts that have not ended, on a Ray that lives as long as they need it."""
    left = [attempt for attempt in attempts if not attempt.ended]
    if not left:
        return
    try:
        with cluster.connected(left[0].job.config) as ray:
            try:
                _with_driver_actor(left)
            except ray.exceptions.RayError:  # one of many that a Ray gives which has died
                check_alive(ray)
                raise
    except RayLostError:
        for attempt in left:
            attempt.begun = True
        raise


def _tasks(attempts: Sequence[Attempt]) -> list[SeedTask]:
    # Absolute: the processes of a Ray that was there before work in another directory.
    return [SeedTask(a.job.config, a.job.folder.absolute(), a.begun) for a in attempts]


def _tell(attempts: Sequence[Attempt], event: Event) -> None:
    attempts[event["task"]].told(event)


def _with_driver_actor(attempts: Sequence[Attempt]) -> None:
    """Run the driver actor; where it dies, make it anew and go on from the last checkpoint.

    It works on this machine, whose folders it writes to. The hosts' places are reserved here: Ray keeps a group that an
    actor asked for until the whole job ends.
    """
    import ray
    from ray.util import remove_placement_group
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    resources = attempts[0].job.config.resources
    hosts = int(resources.hosts)
    say = partial(_warn, attempts[0])
    group = reserve(hosts, resources.cpus_per_host, float(resources.gpus_per_host), resources.strategy, say)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    if resources.address != "local":
        attempts[0].watch({"warning": f"cluster: {cluster.described(ray)}"})
        attempts[0].watch({"warning": f"results and checkpoints: {attempts[0].job.folder.absolute()} on this machine"})
    try:
        for _ in range(DRIVER_RESTARTS):
            left = [attempt for attempt in attempts if not attempt.ended]
            if not left:
                return
            actor = ray.remote(DriverActor).options(num_cpus=0, max_concurrency=2, scheduling_strategy=here).remote()
            try:
                return _watched(ray, actor, actor.run.remote(_tasks(left), group), left)
            except ray.exceptions.RayActorError:
                check_alive(ray)
                say("the driver died: going on from the last checkpoint")
                left[0].begun = True
            except ray.exceptions.ActorUnschedulableError:
                check_node(ray)
                raise
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, ConfigError | OSError):
                    raise error.cause from None
                raise
            finally:
                ray.kill(actor)
    finally:
        with suppress(ray.exceptions.RayError):
            remove_placement_group(group)
    raise RuntimeError(f"the driver died {DRIVER_RESTARTS} times: is the machine's memory exhausted?")


def _watched(ray: Any, actor: Any, done: Any, attempts: Sequence[Attempt]) -> None:
    finished: list[Any] = []
    while not finished:
        finished, _ = ray.wait([done], timeout=LOOK)
        for event in _answer(ray, actor.events.remote(), partial(_warn, attempts[0])):
            _tell(attempts, event)
    ray.get(done)


def _answer(ray: Any, reference: Any, say: Callable[[str], None]) -> Any:
    """What an actor on this machine answers; a Ray that has died never would. Raises RuntimeError after PATIENCE."""
    asked, told = time.monotonic(), 0
    check_alive(ray)
    while not ray.wait([reference], timeout=LOOK)[0]:
        check_alive(ray)
        silence = time.monotonic() - asked
        if silence > PATIENCE:
            raise RuntimeError(f"the driver has not answered for {PATIENCE:g} s: is the machine overloaded?")
        if silence > SILENCE * (told + 1):
            check_node(ray)
            told += 1
            if told == 1:
                say(f"the driver has not answered for {SILENCE:g} s and is waited for, {PATIENCE:g} s at most")
    return ray.get(reference)
