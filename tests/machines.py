"""A Ray cluster of machines that share neither memory nor files, on this one: each has a mount namespace of its own.

`python -m tests.machines [METHOD ...]` runs methods (all of them unless named) in one process, on two hosts of one
machine, and on two and three machines, and compares what was recorded; it says what differs and fails if anything does.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbench import cache_folder
from tests.runtime.rounds import play, small

RAY = Path(sys.executable).with_name("ray")
PATIENCE = 90.0  # seconds for a machine to join
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]


def possible() -> bool:
    """Whether this user may make namespaces here."""
    return (
        shutil.which("unshare") is not None and not subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode
    )


def apart(*hidden: Path | str, name: str | None = None) -> list[str]:
    """What a command begins with that has processes, shared memory and these folders of its own, and a host name."""
    own = [f"mount -t tmpfs tmpfs '{path}'" for path in ("/dev/shm", *hidden)] + [f"hostname {name}"] * bool(name)
    return [*NAMESPACE, "--uts", "sh", "-c", " && ".join([*own, 'exec "$@"']), "sh"]


class Machines:
    """A head with two cores, where the caller is, and workers with one core, an empty cache and memory of their own.

    Ray believes that each worker has a GPU.

    hidden: folders of the caller's that workers do not see, such as that of results, beside its cache.
    """

    def __init__(self, workers: int, *hidden: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fm", dir="/tmp"))  # short: the paths of Ray's sockets are limited
        self.port, self._hidden = free_port(), [*hidden, cache_folder.root()]
        cache_folder.root().mkdir(parents=True, exist_ok=True)
        self.environment = os.environ | {"RAY_TMPDIR": str(self.folder), "RAY_AUTH_MODE": "disabled"}
        common = ["--object-store-memory", "100000000", "--disable-usage-stats", "--block"]
        head = [
            str(RAY),
            "start",
            "--head",
            "--port",
            str(self.port),
            "--num-cpus",
            "2",
            "--include-dashboard",
            "false",
        ]
        (self.folder / "ray").mkdir()
        self.processes = [self._start("head", [*head, *common], HEALTH)]
        self._until(lambda: answers(self.port), "the head answers")
        join = [str(RAY), "start", "--address", self.address, "--num-cpus", "1", "--num-gpus", "1", *common]
        for number in range(workers):
            self.processes.append(self._start(f"worker-{number}", join, {}))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _start(self, name: str, command: Sequence[str], more: dict[str, str]) -> subprocess.Popen:
        environment = self.environment | more
        if name == "head":
            command = [*NAMESPACE, *command]
        else:
            environment["FEDBENCH_CACHE"] = str(self.folder / name)
            command = [*apart(self.folder / "ray", *self._hidden, name=name), *command]
        with (self.folder / f"{name}.log").open("w") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _until(self, there: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not there():
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-500:] for path in self.folder.glob("*.log"))
                raise TimeoutError(f"{what}: not within {PATIENCE:g} s\n{logs}")
            time.sleep(0.2)

    def lose(self, worker: int) -> None:
        """A machine is gone without a word."""
        os.killpg(self.processes[1 + worker].pid, signal.SIGKILL)

    @contextmanager
    def joined(self) -> Iterator[Any]:
        """Ray in this process, once all machines are there."""
        os.environ.update({key: self.environment[key] for key in ("RAY_TMPDIR", "RAY_AUTH_MODE")})
        import ray

        ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        try:
            self._until(lambda: sum(node["Alive"] for node in ray.nodes()) == len(self.processes), "all machines join")
            yield ray
        finally:
            ray.shutdown()

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # all that is in its namespace dies with it
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def hosts_on(count: int, strategy: str) -> Iterator[Any]:
    """So many hosts, on as few machines as hold them or on as many."""
    from ray.util import remove_placement_group

    from fedbench.runtime.ray.hosts import RayHosts
    from fedbench.runtime.ray.placement_groups import reserve

    group = reserve(count, 1, 0, strategy)
    hosts = RayHosts(count, 1, 0, group)
    try:
        yield hosts
    finally:
        hosts.close()
        remove_placement_group(group)


PLACES = {
    "2 on one machine": (2, "strict_pack", 0),
    "on 2 machines": (2, "strict_spread", 1),
    "on 3 machines": (3, "strict_spread", 2),
}
"""By name: hosts, strategy, and how many of them at least are on other machines than the driver."""


def compared(methods: Sequence[str], folder: Path, places: Sequence[str] = tuple(PLACES)) -> dict[str, list[str]]:
    """By place, the methods whose records differ from those of one process, and what is not where it should be."""
    expected = {method: play(small(method), folder / method) for method in methods}
    wrong: dict[str, list[str]] = {}
    for place in places:
        count, strategy, elsewhere = PLACES[place]
        with hosts_on(count, strategy) as hosts:
            wrong[place] = [m for m in methods if play(small(m), folder / f"{m} {place}", hosts) != expected[m]]
            if hosts._near.count(False) < elsewhere:
                wrong[place].append(f"hosts are {hosts._near}")
    return wrong


def main(methods: Sequence[str]) -> int:
    from fedbench import methods as known

    hidden = Path(tempfile.mkdtemp(prefix="results"))
    machines = Machines(2, hidden)
    try:
        with machines.joined():
            wrong = compared(methods or known.names(), hidden)
    finally:
        machines.close()
        shutil.rmtree(hidden)
    for place, names in wrong.items():
        print(f"{place}: {'the same bits' if not names else 'differ: ' + ', '.join(names)}")
    return any(wrong.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
