"""Checks whether Ray is alive: waiting for a dead Ray would never end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fedbench.errors import ConfigError, RunError
from fedbench.runtime import retries

MEMORY_REMEDY = "Repeat the command with fewer --hosts (or --trials at once): it continues from the last checkpoint"
VITAL = {"raylet", "gcs_server"}


class RayLostError(BaseException):
    """The Ray that was started by this process has died.

    It is no Exception, because Ray Tune catches those and then asks the dead Ray to remove what it had placed, which
    ends the process after a minute.
    """


def ray_restarts(say: Callable[[str], None]) -> Iterator[AbstractContextManager[None]]:
    """Attempts at a block that uses its own Ray: the block is repeated each time that Ray dies in it.

    The block must skip what is done already: `for attempt in ray_restarts(say): with attempt: ...`. say: reports every
    death.
    """
    done = False

    @contextmanager
    def attempt() -> Iterator[None]:
        nonlocal done
        done = True
        try:
            yield
        except RayLostError as error:
            done = False
            say(f"{error}: starting it again and continuing from the last checkpoints")

    for _ in range(retries.RAY):
        yield attempt()
        if done:
            return
    raise RunError(f"Ray died {retries.RAY} times: is the machine's memory exhausted? {MEMORY_REMEDY}")


def dead_parts(ray: Any) -> set[str]:
    """The vital processes of a Ray started by this process that have died, which Ray itself does not report."""
    node = ray._private.worker._global_node
    return VITAL.intersection(kind for kind, _ in node.dead_processes()) if node else set()


def answers(ray: Any) -> bool:
    """Whether to ask Ray for anything while an exception is handled: a dead Ray would be waited for.

    The signal that interrupts this process may be ending Ray too, and this process ends its connection anyway, with
    which its actors and places are gone.
    """
    return not isinstance(sys.exception(), KeyboardInterrupt) and not dead_parts(ray)


def check_alive(ray: Any) -> None:
    """Raises RayLostError if this process started Ray and it has died."""
    if dead := dead_parts(ray):
        raise RayLostError(f"Ray died on this machine ({', '.join(sorted(dead))})")


def check_node(ray: Any) -> None:
    """Raises ConfigError if a cluster has given up this machine."""
    here = ray.get_runtime_context().get_node_id()
    if not any(node["NodeID"] == here and node["Alive"] for node in ray.nodes()):
        raise ConfigError(
            "the cluster has lost this machine: start Ray on it again (`ray start`), then repeat the command, which "
            "continues from the last checkpoint"
        )
