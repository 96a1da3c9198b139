"""What a GPU makes of fedbench: steps, whole rounds, and every method, each as a ratio or a difference in one run.

    python benchmarks/gpu.py [PART ...] [--device cuda] [--quick] [--json FILE]
    python benchmarks/gpu.py --check        every part and the tests that need a GPU, in less than ten minutes

One process without Ray and W&B (`--hosts 0`): beside torch, torchvision, lightning and pandas it needs pydantic,
PyYAML, pyarrow, rich, scipy and safetensors, and pytest for --check. Parts:
steps     gradient steps of many clients: the bare loop of PyTorch, and fedbench's engines, samples a second and ratios
rounds    whole rounds of W0 and W1 (benchmarks/throughput.py), evaluation off, against the bare loop in this process
cifar10   1,500 rounds of 50 clients with 50 images, batches of 10, one epoch (pfl-research's benchmark), minutes
busy      time of all kernels over that of rounds of W1 (above 1: streams overlap), and what the processor does most
evaluation  forward passes of 100 clients' models over their own 100 test images beside those of the bare loop
hosts     two rounds of some models dealt to 1, 2 and 4 hosts on one device, by both engines: the same bits?
ray       W1 on 1, 2 and 4 hosts of Ray that share the device: seconds a round, memory, the same bits? (needs Ray)
methods   two rounds of all methods on the device and on the processor: accuracies in points, and what fails
With `--device cpu --quick` all of it runs on any machine, to see that it does.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from benchmarks.throughput import WORKLOADS, Workload, asked  # noqa: E402
from fedbench.processor import cores  # noqa: E402

STEPS = {
    "mlp, batch 32": Workload("mlp", (1, 8, 8), 320, 1, 1, 32, 1, hidden=[64]),
    "avgcnn, batch 10": Workload("avgcnn", (3, 32, 32), 100, 1, 1, 10, 1),
    "avgcnn, batch 50": Workload("avgcnn", (3, 32, 32), 500, 1, 1, 50, 1),
    "resnet18, batch 32": Workload("resnet18", (3, 32, 32), 128, 1, 1, 32, 1),
}
PFL_RESEARCH = Workload("avgcnn", (3, 32, 32), 50, 1000, 50, 10, 1)
ROUNDS = 1500
ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"engine": "loop"},
    "graph of 1": {"engine": "graph", "width": 1},
    "graph of 10": {"engine": "graph", "width": 10},
    "graph of 10, channels_last": {"engine": "graph", "width": 10, "memory_format": "channels_last"},
    "graph of 50": {"engine": "graph", "width": 50},
    "stack of 10": {"engine": "stack", "width": 10},
}
ONLY: list[str] = []
"""Methods of the part `methods`; none: all."""
WARM_UP = 3
"""Rounds after which all steps are captured."""


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: str, repeats: int) -> float:
    """Median of some repeats after a few to warm up."""
    for _ in range(WARM_UP):
        work()
    found = []
    for _ in range(repeats):
        synchronise(device)
        begun = time.perf_counter()
        work()
        synchronise(device)
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


class Bare:
    """PyTorch's own loop over clients, one after another, on data that lie on the device."""

    def __init__(self, workload: Workload, device: str) -> None:
        from fedbench import models

        self.workload, self.device = workload, device
        options: dict[str, Any] = {"hidden": workload.hidden} if workload.hidden else {}
        self.model = models.build(workload.model, workload.shape, 10, **options).to(device)
        self.start = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.images = torch.randn(workload.images, *workload.shape, device=device)
        self.labels = torch.randint(0, 10, (workload.images,), device=device)

    def round(self) -> None:
        workload = self.workload
        for _ in range(workload.share):
            self.model.load_state_dict(self.start)
            self.model.train()
            optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.5, weight_decay=5e-4)
            for _ in range(workload.epochs):
                for index in torch.randperm(workload.images, device=self.device).split(workload.batch):
                    optimizer.zero_grad()
                    F.cross_entropy(self.model(self.images[index]), self.labels[index]).backward()
                    optimizer.step()

    def evaluate(self, clients: int) -> None:
        self.model.eval()
        for _ in range(clients):
            self.model.load_state_dict(self.start)
            with torch.no_grad():
                outputs = self.model(self.images)
                float(F.cross_entropy(outputs, self.labels)), int((outputs.argmax(1) == self.labels).sum())


class Ours:
    """Rounds of fedbench in this process, evaluation off."""

    def __init__(self, workload: Workload, device: str, **train: Any) -> None:
        from fedbench.jobs.resolve import resolve
        from fedbench.runtime.driver import Driver
        from fedbench.runtime.hosts import InProcess
        from fedbench.runtime.observers.recorder import Recorder

        resources = {"hosts": 0, "gpus_per_host": 1 if device == "cuda" else 0}
        resolved = resolve(asked(workload, train, resources))
        folder = Path(tempfile.mkdtemp(prefix="fedbench-gpu-"))
        self.run = Driver.of(resolved, InProcess(), Recorder(folder, resolved.task))
        self.run.begin()

    def round(self) -> None:
        self.run.exchange(self.run.record.number)

    @property
    def remarks(self) -> list[str]:
        return [line for line in self.run.recorder.warnings if "train.engine" in line]


def engines(device: str, clients: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those that can train so many clients on the device, with their configurations."""
    for name, train in ENGINES.items():
        if train.get("width", 1) // 2 <= clients and (train["engine"] != "graph" or device == "cuda"):
            yield name, train


def steps(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Clients' fits with the rounds around them: 32 clients of each kind, ten where it is quick."""
    for name, workload in STEPS.items():
        clients = 10 if quick or workload.model == "resnet18" else 32
        many = replace(workload, clients=clients, share=clients, images=workload.images // (4 if quick else 1))
        samples = many.images * clients
        base = seconds(Bare(many, device).round, device, 1 if quick else 3)
        row: dict[str, Any] = {"what": name, "clients": clients, "bare samples/s": samples / base}
        for engine, train in engines(device, clients):
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            ours = Ours(many, device, **train)
            row[engine] = base / seconds(ours.round, device, 1 if quick else 3)
            if device == "cuda":
                row[f"{engine}, GB"] = torch.cuda.max_memory_reserved() / 2**30
            if ours.remarks:
                row[f"{engine}, said"] = ours.remarks
            del ours
        yield row


def rounds(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    for name in ("W0", "W1"):
        workload = WORKLOADS[name]
        repeats = 2 if quick else 10
        base = seconds(Bare(workload, device).round, device, repeats)
        row: dict[str, Any] = {"what": name, "bare ms": 1000 * base}
        for engine, train in engines(device, workload.share):
            row[engine] = base / seconds(Ours(workload, device, **train).round, device, repeats)
        yield row


def cifar10(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    workload = replace(PFL_RESEARCH, clients=100) if quick else PFL_RESEARCH
    for engine, train in engines(device, workload.share):
        ours = Ours(workload, device, **train)
        if train["engine"] == "graph" and not quick:
            for _ in range(60):  # a client's places are sent to the GPU once
                ours.round()
        one = seconds(ours.round, device, 1 if quick else 10)
        yield {"what": engine, "s a round": one, f"minutes of {ROUNDS} rounds": one * ROUNDS / 60}


def busy(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    from torch.profiler import ProfilerActivity, profile

    ours = Ours(WORKLOADS["W1"], device)
    for _ in range(WARM_UP):
        ours.round()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    synchronise(device)
    begun = time.perf_counter()
    with profile(activities=activities) as seen:
        for _ in range(1 if quick else 3):
            ours.round()
        synchronise(device)
    wall = time.perf_counter() - begun
    table = seen.key_averages()
    kernels = sum(getattr(event, "self_device_time_total", 0) for event in table) / 1e6
    yield {"what": "W1", "kernels": kernels / wall if device == "cuda" else None, "wall s": wall}
    for event in sorted(table, key=lambda event: -event.self_cpu_time_total)[:8]:
        yield {"what": event.key, "calls": event.count, "processor s": event.self_cpu_time_total / 1e6}


def evaluate_all(learner: Any, weights: Any, data: Any, clients: int) -> None:
    for _ in range(clients):
        learner.evaluate(weights, data)


def evaluation(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Every client's own model on its own images, as after local fits."""
    from fedbench.data.split import Split

    for model in ("avgcnn", "resnet18"):
        clients = 10 if quick else 100
        workload = Workload(model, (3, 32, 32), 100, clients, clients, 50, 1)
        hosts: Any = Ours(workload, device).run.hosts
        bare, learner = Bare(workload, device), hosts._host.models[0].learner
        split = Split(bare.images, torch.arange(100, device=device), bare.labels, None, (0, 0))

        ours = partial(evaluate_all, learner, learner.initial(), split, clients)
        base, own = seconds(partial(bare.evaluate, clients), device, 3), seconds(ours, device, 3)
        yield {"what": model, "bare ms a client": 1000 * base / clients, "fedbench": base / own}


class Several:
    """Hosts in one process, each with a learner of its own; for methods without private states."""

    def __init__(self, count: int, device: str) -> None:
        self.count, self.device, self.remarks = count, device, list[str]()

    def begin(self, setup: Any, parts: Any) -> None:
        from fedbench.runtime.host import Host

        self._hosts = [Host.of(replace(setup, device=self.device), parts.run) for _ in range(self.count)]

    def exchange(self, orders: Sequence[Any], moves: Sequence[Any] = ()) -> list[Any]:
        return [host.work(order) for host, order in zip(self._hosts, orders, strict=True)]


def hosts(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    from fedbench.jobs.resolve import resolve
    from fedbench.runtime.driver import Driver
    from fedbench.runtime.observers.recorder import Recorder

    for model in ("avgcnn", "resnet8"):
        found: dict[str, torch.Tensor] = {}
        for engine in ("loop", "graph") if device == "cuda" else ("loop",):
            for count in (1, 2, 4):
                workload = Workload(model, (3, 32, 32), 40, 8, 8, 16, 2)
                resources = {"hosts": 0, "gpus_per_host": 1 if device == "cuda" else 0}
                run = resolve(asked(workload, {"engine": engine, "width": 3}, resources))
                folder = Path(tempfile.mkdtemp(prefix="fedbench-gpu-"))
                driver: Any = Driver.of(run, Several(count, device), Recorder(folder, run.task))  # type: ignore[arg-type]
                driver.begin()
                for _ in range(2):
                    driver.exchange(driver.record.number)
                found[f"{engine}, {count} hosts"] = torch.cat([driver.server.params, driver.server.buffers])
        first = next(iter(found.values()))
        yield {"what": model, **{name: str(torch.equal(first, other)) for name, other in found.items()}}


def ray(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    from fedbench import run

    first, rounds = "", 8 if quick else 40
    for count in (1, 2) if quick else (1, 2, 4):
        resources = {"hosts": count, "gpus_per_host": 1 / count if device == "cuda" else 0}
        folder = Path(tempfile.mkdtemp(prefix="fedbench-gpu-"))
        config = asked(WORKLOADS["W1"], {}, resources).model_copy(update={"rounds": rounds, "out": folder / "results"})
        result = run(config.model_copy(update={"save_models": True}), report=False)
        lines = [json.loads(line) for line in (result.folder / "timings.jsonl").read_text().splitlines()]
        models = sorted(path for path in result.folder.rglob("*.safetensors"))
        bits = sha256(b"".join(path.read_bytes() for path in models)).hexdigest()
        first = first or bits
        one = statistics.median(line["total"] for line in lines[WARM_UP + 1 : -1])
        memory = max(line["gpu_mb"] for line in lines)
        yield {"what": f"{count} hosts", "ms a round": 1000 * one, "GPU MB": memory, "same bits": str(bits == first)}


def methods(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    from fedbench import Config, run
    from fedbench import methods as known

    for name in ONLY or known.names():
        needs = {"public": {"size": 40}} if "public" in known.load(name).needs else {}
        found: dict[str, Any] = {}
        row: dict[str, Any] = {"what": name}
        for place in dict.fromkeys(("cpu", device)):
            both = ("loop", "graph" if place == "cuda" else "stack")
            for engine in (both[-1:] if place == "cuda" else both[:1]) if quick else both:
                try:
                    config = Config(
                        method=name,
                        data="digits",
                        partition="iid",
                        model={"name": "mlp", "hidden": [16]},
                        train={"epochs": 2, "batch_size": 16, "lr": 0.1, "engine": engine},
                        rounds=2,
                        resources={
                            "hosts": 0,
                            "gpus_per_host": 1 if place == "cuda" else 0,
                            "states": "memory" if engine == "loop" else "disk",
                        },
                        out=Path(tempfile.mkdtemp(prefix="fedbench-gpu-")),
                        **needs,
                    )
                    found[f"{place} {engine}"] = run(config, report=False).metrics["test_accuracy"]
                except Exception as error:
                    row[f"{place} {engine}, failed"] = f"{type(error).__name__}: {str(error).splitlines()[0:1]}"
        base = found.get("cpu loop")
        row["accuracy"] = None if base is None else 100 * float(base.mean())
        for where, scores in found.items():
            if base is not None and where != "cpu loop":
                row[where] = 100 * float((scores - base).abs().max())
        yield row


PARTS: dict[str, Callable[[str, bool], Iterator[dict[str, Any]]]] = {
    "steps": steps,
    "rounds": rounds,
    "cifar10": cifar10,
    "busy": busy,
    "evaluation": evaluation,
    "hosts": hosts,
    "ray": ray,
    "methods": methods,
}
MEANS = {
    "steps": "above 1: faster than the bare loop",
    "rounds": "above 1: faster than the bare loop",
    "cifar10": "whole rounds, evaluation off",
    "busy": "",
    "evaluation": "above 1: faster than the bare loop",
    "ray": "",
    "hosts": "whether the model is the same as by the loop on one host",
    "methods": "largest difference to the loop on the processor, in points",
}


def machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "cores": cores()}


def told(row: dict[str, Any]) -> str:
    shown = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in row.items() if key != "what"}
    return f"  {row['what']}: " + ", ".join(f"{key} {value}" for key, value in shown.items())


def tests() -> int:
    """Those that need a GPU. Returns pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/engine"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", nargs="+", default=[], metavar="METHOD", help="those of the part methods")
    parser.add_argument("--quick", action="store_true", help="few repeats of small work")
    parser.add_argument("--check", action="store_true", help="all parts and the tests that need a GPU")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    given = parser.parse_args(argv)
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}: one of {', '.join(PARTS)}")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is here: --device cpu --quick shows what would be measured")
    ONLY[:] = given.only
    os.chdir(ROOT)
    torch.set_num_threads(1)
    status = tests() if given.check else 0
    found: dict[str, Any] = {"machine": machine(given.device)}
    print(", ".join(f"{key} {value}" for key, value in found["machine"].items()), flush=True)
    for part in given.parts or [part for part in PARTS if part != "ray" or find_spec("ray")]:
        begun = time.perf_counter()
        print(f"{part}{': ' if MEANS[part] else ''}{MEANS[part]}", flush=True)
        rows = found[part] = []
        for row in PARTS[part](given.device, given.quick):
            rows.append(row)
            print(told(row), flush=True)
            if given.json:
                given.json.write_text(json.dumps(found, indent=1))
        print(f"  ({time.perf_counter() - begun:.0f} s)", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
