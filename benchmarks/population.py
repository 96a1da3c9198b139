"""What registered clients cost that take no part: the same rounds with more and more clients behind them.

    python benchmarks/population.py [--methods fedavg fedper fedcac] [--clients 1000 10000 100000] [--rounds 20]

A round has 100 participants, clients hold six images of 8 x 8 pixels each, the model is an mlp, and two hosts are Ray
actors; with `--hosts 0` the host is in the driver's process, whose processor time is then that of all. Every population
has a driver and a Ray of its own, and their rounds take turns, so that the machine's other work falls on all of them
alike. Times are medians; memory is the largest proportional set size, and of folders in shared memory what they hold.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.memory import process_tree

PARTS = ("train", "comm", "server", "eval", "log")
TRAIN, TEST = 4, 2
"""Images of a client."""


class Patterns:
    """Images [8, 8] that are made when they are asked for, so that no process holds them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import numpy as np

        label = index % 10
        return ((np.arange(64) * (2 * label + 1) + index // 10) % 256).astype(np.uint8).reshape(8, 8), label


def patterns(clients: int) -> tuple[Patterns, Patterns]:
    """A train and a test part for so many clients."""
    return Patterns(TRAIN * clients), Patterns(TEST * clients)


def wanted(method: str, clients: int, asked: argparse.Namespace) -> dict[str, Any]:
    """What the configuration is made of."""
    return dict(
        method=method,
        data={"name": "benchmarks.population:patterns", "clients": clients},
        partition={"name": "iid", "clients": clients},
        model={"name": "mlp", "hidden": [64]},
        train={"epochs": 1, "batch_size": 4},
        rounds=10**6,
        participation=asked.participants,
        evaluate={"clients": asked.evaluated},
        checkpoint={"every": asked.checkpoint},
        resources={"hosts": asked.hosts},
    )


def own_mb(process: int) -> float:
    """Megabytes of a process, shared pages in proportion, without shared memory; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_File:"))) / 1000


def named(process: int, name: str) -> bool:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(name.encode())
    except OSError:
        return False


def held_mb(scratch: Any) -> float:
    """Megabytes that the files of a scratch folder take where it is in shared memory."""
    if scratch is None or not scratch.folder.is_relative_to("/dev/shm"):
        return 0.0
    return sum(path.stat().st_blocks * 512 for path in scratch.folder.rglob("*") if path.is_file()) / 1e6


def serve(pipe: Any, config: dict[str, Any]) -> None:
    """One population, in a process of its own: starts, makes a round whenever it is asked to, and says its memory."""
    from fedbench.config import Config
    from fedbench.data.dataset import Dataset
    from fedbench.jobs.description import describe_run
    from fedbench.jobs.resolve import check_run, resolve
    from fedbench.runtime.driver import Driver
    from fedbench.runtime.hosts import InProcess
    from fedbench.runtime.observers.recorder import Recorder
    from fedbench.runtime.ray import cluster
    from fedbench.runtime.ray.hosts import RayHosts

    asked = Config(**config)
    Dataset.load(asked.data)  # decoded once per machine, which is no part of a start
    folder = Path(tempfile.mkdtemp(prefix="fedbench-population-"))
    count = int(asked.resources.hosts)
    with cluster.connect(asked) if count else nullcontext() as ray:
        hosts: Any = RayHosts(count, 1, 0.0) if count else None
        if ray:
            ray.get([actor.__ray_ready__.remote() for actor in hosts._actors])
        begun, clock = time.perf_counter(), time.process_time()
        resolved = resolve(asked)
        asked = resolved.config
        hosts = hosts or InProcess()
        dealt = check_run(resolved)
        resolved = replace(resolved, dealt=dealt)
        describe_run(folder, resolved, dealt)
        driver = Driver.of(resolved, hosts, Recorder(folder, resolved.task))
        driver.begin()
        pipe.send((time.perf_counter() - begun, time.process_time() - clock))
        processes = [p for p in process_tree(os.getpid()) if named(p, "ray::HostActor")]
        memory = dict.fromkeys(("driver", "hosts", "shared"), 0.0)
        while pipe.recv():
            clock = time.process_time()
            driver.exchange(driver.record.number)
            line = json.loads((folder / "timings.jsonl").read_text().splitlines()[-1])
            pipe.send({**line, "driver_cpu": time.process_time() - clock})
            now = own_mb(os.getpid()), sum(map(own_mb, processes)), held_mb(hosts._scratch)
            memory = {key: max(most, mb) for (key, most), mb in zip(memory.items(), now, strict=True)}
        pipe.send(memory)
        driver.end()
        hosts.close()
    shutil.rmtree(folder)


class Population:
    """A driver with so many registered clients, in a process of its own."""

    def __init__(self, config: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, config))
        self.process.start()
        theirs.close()  # so that its end is noticed
        self.start, self.start_cpu = self.pipe.recv()
        self.rounds: list[dict[str, Any]] = []

    def round(self) -> None:
        self.pipe.send(True)
        self.rounds.append(self.pipe.recv())

    def close(self, warm: int) -> dict[str, Any]:
        """What it cost; rounds to warm up do not count."""
        self.pipe.send(False)
        memory = self.pipe.recv()
        self.process.join()
        median = lambda part: statistics.median(line[part] for line in self.rounds[warm:])  # noqa: E731
        seconds = {part: median(part) for part in ("total", *PARTS, "driver_cpu")}
        return {
            "start": self.start,
            "start_cpu": self.start_cpu,
            **seconds,
            "memory_mb": sum(memory.values()),
            **memory,
        }


def measure(method: str, asked: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """By population, rounds taking turns."""
    known = [Population(wanted(method, clients, asked)) for clients in asked.clients]
    for _ in range(asked.warm + asked.rounds):
        for population in known:
            population.round()
    return {clients: own.close(asked.warm) for clients, own in zip(asked.clients, known, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedper", "fedcac"])
    parser.add_argument("--clients", nargs="+", type=int, default=[1000, 10_000, 100_000], help="registered clients")
    parser.add_argument("--participants", type=int, default=100, help="of a round")
    parser.add_argument("--evaluated", type=int, help="clients that are evaluated; default: that of evaluate.clients")
    parser.add_argument("--rounds", type=int, default=20, help="measured rounds")
    parser.add_argument("--warm", type=int, default=3, help="rounds before them")
    parser.add_argument("--checkpoint", type=int, default=10, help="rounds between checkpoints")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object, by method and clients")
    asked = parser.parse_args()
    if min(*asked.clients, asked.participants, asked.rounds) < 1 or min(asked.warm, asked.checkpoint, asked.hosts) < 0:
        parser.error("--clients, --participants and --rounds are at least 1, the others 0")
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, os.getcwd())
    found = {}
    for method in asked.methods:
        found[method] = measure(method, asked)
        if not asked.json:
            for clients, cost in found[method].items():
                print(line_of(method, clients, cost, found[method][asked.clients[0]]), flush=True)
    if asked.json:
        print(json.dumps(found, indent=1))


def line_of(method: str, clients: int, cost: dict[str, Any], least: dict[str, Any]) -> str:
    parts = ", ".join(f"{part} {1000 * cost[part]:.0f}" for part in PARTS)
    return (
        f"{method} {clients}: {1000 * cost['total']:.0f} ms a round, {cost['total'] / least['total']:.2f} times that "
        f"of the first ({parts}; processor time of the driver {1000 * cost['driver_cpu']:.0f}, "
        f"{cost['driver_cpu'] / least['driver_cpu']:.2f} times); start {cost['start']:.1f} s (processor time "
        f"{cost['start_cpu']:.1f}); "
        f"{cost['memory_mb']:.0f} MB, {cost['memory_mb'] / least['memory_mb']:.2f} times (driver {cost['driver']:.0f}, "
        f"hosts {cost['hosts']:.0f}, shared memory {cost['shared']:.0f})"
    )


if __name__ == "__main__":
    main()
