"""Whether Ray is alive: where it has died, what waits for it would wait for ever."""

from collections.abc import Callable
from typing import Any, TypeVar

from fedbench.errors import ConfigError

RESTARTS = 5
VITAL = {"raylet", "gcs_server"}
T = TypeVar("T")


class RayLostError(Exception):
    """The Ray that was started by this process has died."""


def outliving(body: Callable[[], T], say: Callable[[str], None]) -> T:
    """Do what works on a Ray of its own, and once more where that dies: a body goes on with what it finds done.

    say: told of it.
    """
    for _ in range(RESTARTS):
        try:
            return body()
        except RayLostError as error:
            say(f"{error}: it is started anew, and all goes on from the last checkpoints")
    raise RuntimeError(f"Ray died {RESTARTS} times: is the machine's memory exhausted?")


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
