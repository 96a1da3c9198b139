"""The driver as a Ray actor, and functions that keep it running.

Slow imports are inside functions: the actor's process starts its hosts before it imports PyTorch, so that all of them
import it at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbench.runtime import retries

if TYPE_CHECKING:
    from fedbench.results.events import Event
    from fedbench.runtime.drive import SeedTask

POLL_EVERY = 0.3
"""Seconds between two polls of the driver."""
OnEvent = Callable[[int, "Event"], None]
"""Gets the number of a seed's task, and an event."""


class DriverActor:
    """The driver in an actor; its watcher fetches the events."""

    def __init__(self) -> None:
        self._events: list[tuple[int, Event]] = []

    def run(self, tasks: Mapping[int, SeedTask], group: Any) -> None:
        """Drive the seeds of a run. group: the placement group of its hosts."""
        from fedbench.runtime.ray.hosts import RayHosts
        from fedbench.user_code import refuse_exits

        config = next(iter(tasks.values())).config
        with refuse_exits():
            hosts = RayHosts.of(config.resources, group)
            try:
                from fedbench.runtime.drive import drive_seeds
                from fedbench.runtime.resolved import ResolvedRun

                drive_seeds(ResolvedRun.of(config), tasks, hosts, lambda *event: self._events.append(event))
            finally:
                hosts.close()

    def events(self) -> list[tuple[int, Event]]:
        """The events since the last call, each after the number of its task."""
        taken = self._events[:]
        del self._events[: len(taken)]  # the run may have added others meanwhile
        return taken


def drive_on_ray(tasks: Mapping[int, SeedTask], on_event: OnEvent) -> None:
    """Call `drive_seeds` in a driver actor on a Ray that lives as long as needed.

    If the driver or a Ray of our own dies, it is started again and continues from the last checkpoints.
    """
    from fedbench.results.events import Remark, SeedEnded, SeedPaused
    from fedbench.runtime.ray import cluster
    from fedbench.runtime.ray.liveness import RayLostError, check_alive, ray_restarts

    left, first = dict(tasks), next(iter(tasks))

    def say(line: str) -> None:
        on_event(first, Remark(line))

    def tell(number: int, event: Event) -> None:
        on_event(number, event)
        if isinstance(event, SeedEnded | SeedPaused):
            del left[number]

    for attempt in ray_restarts(say):
        with attempt:
            if not left:
                return
            try:
                with cluster.connect(next(iter(left.values())).config) as ray:
                    try:
                        _with_driver(ray, left, tell, say)
                    except ray.exceptions.RayError:  # a dead Ray raises many of them
                        check_alive(ray)
                        raise
            except RayLostError:
                left.update({number: replace(task, resume=True) for number, task in left.items()})
                raise


def _with_driver(ray: Any, left: dict[int, SeedTask], on_event: OnEvent, say: Callable[[str], None]) -> None:
    """Run the driver actor; if it dies, start it again from the last checkpoint. left: ended tasks are removed.

    The actor runs on this machine, because it writes to its folders. The hosts' places are reserved here, because Ray
    keeps a group requested by an actor until the whole Ray job ends.
    """
    from ray.util import remove_placement_group
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from fedbench.errors import ConfigError, RunError
    from fedbench.runtime.ray import cluster
    from fedbench.runtime.ray.liveness import MEMORY_REMEDY, answers, check_alive, check_node
    from fedbench.runtime.ray.placement_groups import reserve

    first = next(iter(left.values()))
    resources = first.config.resources
    group = reserve(
        int(resources.hosts), resources.cpus_per_host, float(resources.gpus_per_host), resources.strategy, say
    )
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    if resources.address != "local":
        say(f"cluster: {cluster.describe_machines(ray)}")
        say(f"results and checkpoints: {first.folder} on this machine")
    try:
        for _ in range(retries.DRIVER):
            if not left:
                return
            actor = ray.remote(DriverActor).options(num_cpus=0, max_concurrency=2, scheduling_strategy=here).remote()
            try:
                return _watch(ray, actor, actor.run.remote(dict(left), group), on_event, say)
            except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):
                check_alive(ray)
                say("the driver died: continuing from the last checkpoint")
                if left:
                    number = next(iter(left))
                    left[number] = replace(left[number], resume=True)
            except ray.exceptions.ActorUnschedulableError:
                check_node(ray)
                raise
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, ConfigError | OSError):
                    raise error.cause from None
                raise
            finally:
                if answers(ray):
                    ray.kill(actor)
    finally:
        if answers(ray):
            with suppress(ray.exceptions.RayError):
                remove_placement_group(group)
    raise RunError(f"the driver died {retries.DRIVER} times: is the machine's memory exhausted? {MEMORY_REMEDY}")


def _watch(ray: Any, actor: Any, done: Any, on_event: OnEvent, say: Callable[[str], None]) -> None:
    """Fetch the events of the driver until it is done."""
    finished: list[Any] = []
    while not finished:
        finished, _ = ray.wait([done], timeout=POLL_EVERY)
        for number, event in _answer(ray, actor.events.remote(), say):
            on_event(number, event)
    ray.get(done)


def _answer(ray: Any, reference: Any, say: Callable[[str], None]) -> Any:
    """The answer of an actor on this machine; a dead Ray would never give one. Raises RunError if it takes long."""
    from fedbench.errors import RunError
    from fedbench.runtime.ray.liveness import check_alive, check_node

    begun, warnings, patience = time.monotonic(), 0, retries.WAIT_FOR_PLACES
    check_alive(ray)
    while not ray.wait([reference], timeout=POLL_EVERY)[0]:
        check_alive(ray)
        silence = time.monotonic() - begun
        if silence > patience:
            raise RunError(f"the driver has not answered for {patience:g} s: is the machine overloaded?")
        if silence > retries.WAIT_BEFORE_WARNING * (warnings + 1):
            check_node(ray)
            warnings += 1
            if warnings == 1:
                say(
                    f"the driver has not answered for {retries.WAIT_BEFORE_WARNING:g} s; waiting for it, "
                    f"{patience:g} s at most"
                )
    return ray.get(reference)
