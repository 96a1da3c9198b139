"""Connects to Ray: a local one for the duration of a run, or an existing cluster."""

import errno
import logging
import os
import shutil
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError, first_line
from fedbench.installation import require
from fedbench.processor import cores
from fedbench.runtime import retries
from fedbench.runtime.ray.liveness import RayLostError, check_alive
from fedbench.runtime.ray.placement_groups import check_resources
from fedbench.runtime.ray.processes import MARK, end_processes, own_handlers, signals_ignored
from fedbench.runtime.states.scratch import sweep_all

log = logging.getLogger("fedbench")

STORE_SHARE = 0.25
MOST_NAMED_MACHINES = 8
"""Number of a cluster's machines that are listed one by one."""
COMMAND = "FEDBENCH_COMMAND"
"""Environment variable that passes the user's command line to the processes of a local Ray."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray appends 20 lines of its log to this one, and fedbench has a line of its own.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Raylet is terminated",
}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Gives a Ray that no other machine may join a local address, on Linux too."""
START = 15.0
"""Measured seconds that a local Ray and its hosts take to start; on a busy machine three times as many."""
FULL = (errno.ENOSPC, errno.EDQUOT)
SHARED_MEMORY = "/dev/shm"


def is_joined() -> bool:
    """Whether this process is connected to a Ray."""
    if "ray" not in sys.modules:  # `connect` imports it first, because Ray reads the environment then
        return False
    import ray

    return bool(ray.is_initialized())


def inside_a_trial() -> bool:
    """Whether this process is a trial, whose placement group includes the hosts."""
    if not is_joined():
        return False
    from ray.util import get_current_placement_group

    return get_current_placement_group() is not None


@contextmanager
def connect(config: Config, cpus: float | None = None) -> Iterator[Any]:
    """Ray during a block; an existing connection is used and left open. Raises ConfigError without Ray."""
    require("ray", "use --hosts 0")
    if is_joined():
        import ray

        _check_borrowed(ray)
        yield ray
        return
    mark = uuid.uuid4().hex
    try:
        with _environment(config.resources.address == "local", mark):
            import ray

            with own_handlers():
                _init(ray, config, cpus, lambda: _end_ray(mark))
        yield ray
    finally:
        with signals_ignored():
            _end_ray(mark)
            sweep_all(config.resources.scratch)  # its processes are killed, and leave their files


def _end_ray(mark: str) -> None:
    """Disconnect, and end what is left of a Ray of our own: its agents outlive a start that failed."""
    import ray

    ray.shutdown()
    end_processes(mark)


def _check_borrowed(ray: Any) -> None:
    try:
        check_alive(ray)
    except RayLostError as error:
        raise ConfigError(f"{error}; this process is connected to it: call ray.shutdown() and run again") from None


@dataclass(frozen=True)
class Offer:
    """A cluster's resources of each kind (CPU, GPU): the free ones, and the total of every machine."""

    free: dict[str, float]
    machines: list[dict[str, float]]


@cache
def cluster_offer(address: str) -> Offer:
    """The offer at the time of the first call. Raises ConfigError."""
    with connect(Config(resources={"address": address})) as ray:
        return Offer(dict(ray.available_resources()), [dict(node["Resources"]) for node in alive(ray)])


def alive(ray: Any) -> list[dict[str, Any]]:
    """The machines of a cluster, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


def describe_machines(ray: Any) -> str:
    """`3 machines: head (0 CPU), worker-1 (8 CPU, 1 GPU), worker-2 (8 CPU, 1 GPU)`."""
    machines = []
    for node in alive(ray):
        has = {kind: node["Resources"].get(kind, 0.0) for kind in ("CPU", "GPU")}
        amounts = ", ".join(f"{amount:g} {kind}" for kind, amount in has.items() if amount or kind == "CPU")
        machines.append(f"{node['NodeManagerHostname']} ({amounts})")
    more = f" and {len(machines) - MOST_NAMED_MACHINES} more" if len(machines) > MOST_NAMED_MACHINES else ""
    noun = "machine" if len(machines) == 1 else "machines"
    return f"{len(machines)} {noun}: {', '.join(sorted(machines)[:MOST_NAMED_MACHINES])}{more}"


def _init(ray: Any, config: Config, cpus: float | None, undo: Callable[[], object]) -> None:
    """Start a local Ray or join a cluster. undo: called after a start that failed. Raises ConfigError."""
    quiet = dict(log_to_driver=False, logging_level="ERROR")
    address = config.resources.address
    if address != "local":
        _check_address(address)
        try:
            _check_listening(address)
            log.info("joining the Ray cluster at %s", address)
            ray.init(address=address, **quiet)
        except (ConnectionError, TimeoutError, socket.gaierror):
            raise ConfigError(
                f"resources.address = {address}: no Ray cluster answers there; start one with `ray up`"
            ) from None
        except Exception as error:  # Ray raises bare ones
            more = f"; {advice}" if (advice := remedy(error)) else ""
            raise ConfigError(f"resources.address = {address}: Ray cannot join ({first_line(error)}){more}") from error
        return
    available = cores()
    needed = ceil(int(config.resources.hosts) * config.resources.cpus_per_host) if cpus is None else ceil(cpus)
    if config.resources.cpus_per_host > 1:
        check_resources({"CPU": available}, {"CPU": config.resources.cpus_per_host}, int(config.resources.hosts))
    # More hosts than cores is slow but valid: results do not depend on the number of hosts.
    options = dict(num_cpus=max(available, needed), object_store_memory=_store_bytes(), include_dashboard=False)
    log.info("starting Ray")
    start_with_retries(lambda: ray.init(address="local", **options, **quiet), undo)


def start_with_retries(start: Callable[[], object], undo: Callable[[], object]) -> None:
    """Start Ray, which sometimes fails; failed starts are undone and repeated.

    Raises ConfigError with the error of the last start.
    """
    for attempt in range(retries.RAY_START):
        try:
            start()
            return
        except Exception as error:  # Ray raises bare ones
            reason = first_line(error)
            with suppress(Exception):
                undo()
            if advice := remedy(error):
                raise ConfigError(
                    f"Ray cannot start ({reason}): {advice}, or run in one process with --hosts 0"
                ) from error
            if attempt < retries.RAY_START - 1:
                log.warning("Ray did not start, trying again: %s", reason)
    raise ConfigError(
        f"Ray could not be started in {retries.RAY_START} attempts ({reason}): see its logs in {_logs()}; start "
        "again when the machine is less busy, or run in one process with --hosts 0"
    )


def remedy(error: Exception) -> str | None:
    """The remedy if another start would fail for the same reason; None if it may succeed."""
    if "AF_UNIX" in str(error):
        return "set RAY_TMPDIR to a folder with a shorter name for its sockets, for example RAY_TMPDIR=/tmp"
    if not isinstance(error, OSError) or not (error.filename or error.errno in FULL):
        return None
    if str(error.filename).startswith(SHARED_MEMORY):
        return f"let all users write to shared memory, as root with `chmod 1777 {SHARED_MEMORY}`"
    return "set RAY_TMPDIR to a folder that has room and in which you may write"


def _logs() -> Path:
    """The log folder of the last Ray started here."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(folder) / "ray" / "session_latest" / "logs"


def _check_address(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and "/" not in host and port.isdecimal() and int(port) < 2**16):
        raise ConfigError(
            f"resources.address = {address!r}: must be local, auto or host:port, for example --address 10.0.0.1:6379; "
            "behind a dashboard, `ray job submit` runs the command on the cluster (docs/cluster.md)"
        )


def _check_listening(address: str) -> None:
    """Raises OSError if nothing listens: Ray itself would retry for minutes and then end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def _environment(local: bool = True, mark: str = "") -> Iterator[None]:
    """Sets the environment that Ray's processes inherit during a block, and restores it afterwards.

    mark: tells the processes of a local Ray.
    """
    before = dict(os.environ)
    for name, value in {**QUIET, **(LOOPBACK if local else {})}.items():
        os.environ.setdefault(name, value)
    os.environ |= {COMMAND: " ".join(sys.argv), MARK: mark}
    # Workers import the users' modules from the command's working directory.
    here = [path or os.getcwd() for path in sys.path if path in ("", os.getcwd())]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*here, *filter(None, known)]))
    try:
        yield
    finally:
        for name in {*QUIET, *LOOPBACK, COMMAND, MARK, "PYTHONPATH"}:
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})


def _store_bytes() -> int:
    """A quarter of the memory, limited by the size of shared memory; pages are allocated only when used."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shared = shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else memory
    return int(max(100 * 2**20, min(memory * STORE_SHARE, shared * 0.8)))
