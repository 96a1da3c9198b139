"""Seconds per round, ours and a bare PyTorch loop interleaved in one run.

    python benchmarks/throughput.py [W0 W1 W2 W3] [--rounds 12] [--starts 3] [--hosts 0] [--engine compiled] [--json]

The bare loop is one process per core, the same model in plain PyTorch (contiguous, torch.optim.SGD), the same steps on
data that are in memory as floats: no messages, no aggregation, no evaluation. Ours is the whole engine: two hosts in
Ray actors, messages, states, the server half. Below a ratio of 1 ours is faster; only ratios inside one run count.
Both are started several times, because where memory happens to lie makes a process up to a fifth slower or faster for
all of its life.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from fedbench.processor import cores


@dataclass(frozen=True)
class Workload:
    """A workload of the harness: `images` training images per client, `share` clients per round."""

    model: str
    shape: tuple[int, int, int]
    images: int
    clients: int
    share: int
    batch: int
    epochs: int
    method: str = "fedavg"
    hidden: list[int] | None = None


WORKLOADS = {
    "W0": Workload("mlp", (1, 8, 8), 144, 10, 10, 32, 1, hidden=[64]),
    "W1": Workload("avgcnn", (3, 32, 32), 50, 100, 10, 50, 5),
    "W2": Workload("resnet18", (3, 32, 32), 100, 10, 10, 32, 3),
    "W3": Workload("avgcnn", (3, 32, 32), 50, 100, 100, 50, 1, method="fedcac"),
}


MANY = 10_000
"""Rounds of a run that nobody ends; before the first one it draws the clients of all."""


def random_images(images: int = 100, shape: Any = (3, 32, 32)) -> tuple[Any, Any]:
    """Random pixels as a train and a test part of items (image, label)."""
    import numpy as np

    draw, (channels, height, width) = np.random.default_rng(0), shape
    pixels = lambda: draw.integers(0, 256, (height, width, channels), np.uint8)  # noqa: E731
    part = lambda n: [(pixels(), int(draw.integers(10))) for _ in range(n)]  # noqa: E731
    return part(images), part(max(200, images // 50))


def bare_worker(pipe: Any, workload: Workload, clients: int) -> None:
    """One process of the bare loop: trains `clients` clients per command."""
    import torch
    import torch.nn.functional as F

    from fedbench import models

    torch.set_num_threads(1)
    options: dict[str, Any] = {"hidden": workload.hidden} if workload.hidden else {}
    model = models.build(workload.model, input_shape=workload.shape, classes=10, **options)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = torch.randn(workload.images, *workload.shape)
    labels = torch.randint(0, 10, (workload.images,))
    while pipe.recv():
        begun = time.perf_counter()
        for _ in range(clients):
            model.load_state_dict(start)
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.5, weight_decay=5e-4)
            for _ in range(workload.epochs):
                for index in torch.randperm(workload.images).split(workload.batch):
                    optimizer.zero_grad()
                    F.cross_entropy(model(images[index]), labels[index]).backward()
                    optimizer.step()
        pipe.send(time.perf_counter() - begun)


class Bare:
    """The bare loop in one process per core."""

    def __init__(self, workload: Workload, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes = []
        for rank in range(processes):
            mine, theirs = context.Pipe()
            own = len(range(rank, workload.share, processes))
            context.Process(target=bare_worker, args=(theirs, workload, own), daemon=True).start()
            self.pipes.append(mine)

    def round(self) -> float:
        begun = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(True)
        for pipe in self.pipes:
            pipe.recv()
        return time.perf_counter() - begun

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(False)


def asked(workload: Workload, train: dict[str, Any], resources: dict[str, Any]) -> Any:
    """A run of it without an end and without evaluation."""
    from fedbench.config import Config

    return Config(
        method=workload.method,
        data={
            "name": "benchmarks.throughput:random_images",
            "val": 0,
            "images": workload.images * workload.clients,
            "shape": list(workload.shape),
        },
        partition={"name": "iid", "clients": workload.clients},
        model={"name": workload.model, **({"hidden": workload.hidden} if workload.hidden else {})},
        train={"batch_size": workload.batch, "epochs": workload.epochs, **train},
        rounds=MANY,
        participation=workload.share if workload.share > 1 else 1.0,
        evaluate={"every": MANY},
        checkpoint={"every": 0},
        resources=resources,
    )


class Ours:
    """Whole rounds, evaluation off, by so many hosts of Ray, or in this process."""

    def __init__(self, workload: Workload, hosts: int, precision: str, engine: str) -> None:
        from fedbench.jobs.resolve import resolve
        from fedbench.runtime.driver import Driver
        from fedbench.runtime.hosts import InProcess
        from fedbench.runtime.observers.recorder import Recorder
        from fedbench.runtime.ray.hosts import RayHosts

        resolved = resolve(asked(workload, {"precision": precision, "engine": engine}, {"hosts": hosts}))
        self.folder = Path(tempfile.mkdtemp(prefix="fedbench-throughput-"))
        self.hosts: Any = RayHosts(hosts, 1, 0.0) if hosts else InProcess()
        self.run = Driver.of(resolved, self.hosts, Recorder(self.folder, resolved.task))
        self.run.begin()

    def round(self) -> dict[str, Any]:
        self.run.exchange(self.run.record.number)
        return json.loads((self.folder / "timings.jsonl").read_text().splitlines()[-1])

    def close(self) -> None:
        self.run.end()
        self.hosts.close()


def measure(
    name: str, rounds: int, starts: int, processes: int, precision: str, hosts: int, engine: str
) -> dict[str, Any]:
    """Medians over interleaved rounds of processes that are started so many times."""
    workload = WORKLOADS[name]
    plain: list[float] = []
    rounds_of_ours: list[dict[str, Any]] = []
    for start in range(starts):
        bare, ours = Bare(workload, processes), Ours(workload, hosts, precision, engine)
        bare.round(), ours.round(), bare.round(), ours.round()  # warm-up
        for _ in range(start, rounds, starts):
            plain.append(bare.round())
            rounds_of_ours.append(ours.round())
        bare.close()
        ours.close()
    median = statistics.median
    total = median(line["total"] for line in rounds_of_ours)
    busy = [max(line["host_busy"]) / max(1e-9, min(line["host_busy"])) - 1 for line in rounds_of_ours]
    parts = {part: median(line[part] for line in rounds_of_ours) for part in ("train", "comm", "server", "eval", "log")}
    return {
        "ratio": median(line["total"] / base for line, base in zip(rounds_of_ours, plain, strict=True)),
        "bare_s": median(plain),
        "ours_s": total,
        "extra_ms": 1000 * (total - median(plain)),
        "parts_s": parts,
        "busy_spread": median(busy),
        "rounds": rounds,
        "starts": starts,
        "processes": processes,
        "precision": precision,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=12, help="measured rounds of each, in all")
    parser.add_argument("--starts", type=int, default=3, help="how often the processes are started anew meanwhile")
    parser.add_argument("--processes", type=int, default=cores(), help="processes of the bare loop")
    parser.add_argument("--hosts", type=int, help="hosts of Ray, as many by default; 0: this process")
    parser.add_argument("--engine", default="auto", help="train.engine of ours")
    parser.add_argument(
        "--precision",
        default="32-true",
        choices=["32-true", "bf16-mixed", "64-true"],
        help="train.precision of ours; the bare loop stays in float32",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object keyed by workload")
    given = parser.parse_args()
    unknown = [name for name in given.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]}: one of {', '.join(WORKLOADS)}")
    if min(given.rounds, given.starts, given.processes) < 1:
        parser.error("--rounds, --starts and --processes are at least 1")
    if given.starts > given.rounds:
        parser.error(f"--starts {given.starts}: every start needs a round, and --rounds is {given.rounds}")
    hosts = given.processes if given.hosts is None else given.hosts
    from fedbench.config import Config
    from fedbench.runtime.ray import cluster

    os.chdir(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, os.getcwd())
    found = {}
    with cluster.connect(Config(resources={"hosts": hosts})):
        for name in given.workloads:
            found[name] = result = measure(
                name, given.rounds, given.starts, given.processes, given.precision, hosts, given.engine
            )
            if not given.json:
                parts = ", ".join(f"{part} {1000 * s:.1f}" for part, s in result["parts_s"].items())
                print(
                    f"{name}: ratio {result['ratio']:.3f} (ours {1000 * result['ours_s']:.1f} ms, bare "
                    f"{1000 * result['bare_s']:.1f} ms a round); of it, in ms: {parts}; hosts' busy times differ by "
                    f"{100 * result['busy_spread']:.1f} %",
                    flush=True,
                )
    if given.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
