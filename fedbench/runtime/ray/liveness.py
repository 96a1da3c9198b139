"""Whether Ray is alive: where it has died, what waits for it would wait for ever."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fedbench.errors import ConfigError
from fedbench.runtime import retries

VITAL = {"raylet", "gcs_server"}


class RayLostError(Exception):
    """The Ray that was started by this process has died."""


def ray_restarts(say: Callable[[str], None]) -> Iterator[AbstractContextManager[None]]:
    """Attempts at a block that works on a Ray of its own: another one each time that Ray dies in it.

    The block continues with what it finds done: `for attempt in ray_restarts(say): with attempt: ...`. say: told of
    every death.
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
            say(f"{error}: it is started anew, and all goes on from the last checkpoints")

    for _ in range(retries.RAY):
        yield attempt()
        if done:
            return
    raise RuntimeError(f"Ray died {retries.RAY} times: is the machine's memory exhausted?")


def check_alive(ray: Any) -> None:
    """Raises RayLostError where Ray was started by this process and has died, of which Ray itself says nothing."""
    node = ray._private.worker._global_node
    dead = VITAL.intersection(kind for kind, _ in node.dead_processes()) if node else ()
    if dead:
        raise RayLostError(f"Ray died on this machine ({', '.join(sorted(dead))})")


def check_node(ray: Any) -> None:
    """Raises ConfigError where a cluster has given this machine up."""
    here = ray.get_runtime_context().get_node_id()
    if not any(node["NodeID"] == here and node["Alive"] for node in ray.nodes()):
        raise ConfigError(
            "the cluster has lost this machine: start Ray on it again (`ray start`), then give the same command again, "
            "which goes on from the last checkpoint"
        )
