"""Has Ray Tune keep the processes of trials that have ended for the trials of the next stage.

A new process imports PyTorch and Lightning for seconds. Tune gives a process to the next trial (`reuse_actors`) only
if one waits, and ends all but one when the trials of a stage run out. Its cache of processes and the choice among them
are no public interface: where a version of Ray has others, nothing is changed, and stages start their own processes.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PING = 10.0
"""Seconds within which an idle process says that it is there; it does so in milliseconds."""


def keep_processes() -> None:
    """Changes the controller that `Tuner.fit` uses in this process, once."""
    from ray.tune.execution import tune_controller

    tune: Any = import_module("ray.tune.tune")
    usual: Any = getattr(tune, "TuneController", None)
    cache, needs = getattr(tune_controller, "_ObjectCache", None), ("_maybe_reuse_cached_actor", "_remove_actor")
    if cache is not None and usual is tune_controller.TuneController and all(hasattr(usual, name) for name in needs):
        tune.TuneController = controller(usual, idle_processes(cache))


def idle_processes(usual: Any) -> Any:
    """Tune's cache of idle processes by their resources, which ends some only if a trial waits for other resources."""

    class IdleProcesses(usual):
        def waits_elsewhere(self, *keys: Any) -> bool:
            """Whether a trial waits for other resources than these."""
            return any(count > 0 for key, count in self._max_num_objects.items() if key not in keys)

        def cache_object(self, key: Any, obj: Any) -> bool:
            more = 0 if self.waits_elsewhere(key) else sys.maxsize
            self.increase_max(key, more)
            try:
                return bool(super().cache_object(key, obj))
            finally:
                self.decrease_max(key, more)

        def flush_cached_objects(self, force_all: bool = False) -> Iterator[Any]:
            kept = [key for key, objects in self._cached_objects.items() if objects]
            if force_all or self.waits_elsewhere(*kept):
                yield from super().flush_cached_objects(force_all=force_all)

    return IdleProcesses


def controller(usual: Any, cache: Any) -> Any:
    """Tune's controller with this cache. It gives no trial to a process that has died: the trial would fail."""

    class Controller(usual):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self._actor_cache = cache(may_keep_one=True)

        def _maybe_reuse_cached_actor(self, trial: Any) -> bool:
            if trial not in self._resetting_trials:
                self._drop_dead(trial.placement_group_factory)
            return bool(super()._maybe_reuse_cached_actor(trial))

        def _drop_dead(self, key: Any) -> None:
            """Removes processes from the front of the cache that do not answer."""
            while self._actor_cache.has_cached_object(key):
                first = self._actor_cache._cached_objects[key][0]
                if _answers(self._actor_manager._live_actors_to_ray_actors_resources[first][0]):
                    return
                dead = self._actor_cache.pop_cached_object(key)
                dead.set_on_stop(None)
                dead.set_on_error(None)
                self._remove_actor(tracked_actor=dead)

    return Controller


def _answers(actor: Any) -> bool:
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError

    try:
        ray.get(actor.__ray_ready__.remote(), timeout=PING)
    except (GetTimeoutError, RayActorError):
        return False
    return True
