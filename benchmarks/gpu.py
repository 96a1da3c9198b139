"""What a GPU makes of fedbench: steps, whole rounds, and every method, each as a ratio or a difference in one run.

    python benchmarks/gpu.py [PART ...] [--device cuda] [--quick] [--json FILE] [--photographs FOLDER]
    python benchmarks/gpu.py --check        every part and the tests that need a GPU, in less than ten minutes
    python benchmarks/gpu.py --visit DIR    what a GPU of fifteen minutes is asked, in four steps with limits

One process without Ray and W&B (`--hosts 0`), but for the parts that need Ray. docs/results.md says how to take the
libraries along to a machine without a network, and the minutes of each step. Parts:
steps     gradient steps of many clients: the bare loop of PyTorch, and fedbench's engines, samples a second and ratios
rounds    whole rounds of W0 and W1 (benchmarks/throughput.py), evaluation off, against the bare loop in this process
cifar10   1,500 rounds of 50 clients with 50 images, batches of 10, one epoch (pfl-research's benchmark), minutes
busy      share of the time of rounds of W1 in which a kernel runs, and what processor and device do most
profile   where the processor is in rounds of W1, sampled every millisecond: shares of the functions of fedbench
evaluation  forward passes of 100 clients' models over their own 100 test images beside those of the bare loop
hosts     two rounds of some models dealt to 1, 2 and 4 hosts on one device, by both engines: the same bits?
ray       W1 on 1, 2 and 4 hosts of Ray that share the device: seconds a round, memory, the same bits? (needs Ray)
trials    a grid of four trials of W1, one after another and sharing the device: seconds, memory, same numbers? (Ray)
methods   two rounds of all methods on the device and on the processor: accuracies in points, and what fails
reproduction  FedOBP's table on CIFAR-10 under Dirichlet(0.1), beside the published numbers (--photographs); in as many
          rounds as --seconds allow
With `--device cpu --quick` all of it runs on any machine, to see that it does.
"""

import argparse
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "papers")]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from benchmarks.throughput import WORKLOADS, Workload, asked  # noqa: E402
from fedbench.processor import cores  # noqa: E402
from fedbench.results.files import write_atomically  # noqa: E402
from fedbench.runtime.host import Host  # noqa: E402
from fedbench.runtime.hosts import InProcess  # noqa: E402

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
}
MANY_CLIENTS = ("graph of 10", "graph of 50", "loop")
"""Engines of the part `cifar10`."""
AT_ONCE = 4
"""Trials that share the device."""
EXPERIMENT, CELL, REPRODUCED = "fedobp/main", "cifar10, Dir(0.1)", ("local", "fedavg", "fedper", "fedobp")
PUBLISHED_ROUNDS = 400
SOME_METHODS = (
    *("fedavg", "fedper", "fedobp", "fedrep", "fedbn", "ditto", "pfedme", "scaffold"),
    *("fedcac", "co-pfl", "fedselect", "fedmosaic"),
)
"""Methods that a visit runs: those of the papers, and one or two of each kind."""
GIVEN = argparse.Namespace(only=[], photographs=None, seconds=570.0)
"""Flags that single parts read."""
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
    able = dict(engines(device, workload.share))
    for engine in (name for name in MANY_CLIENTS if name in able):
        ours = Ours(workload, device, **able[engine])
        captured = engine != "loop" and not quick
        if captured:
            for _ in range(60):  # a client's places are sent to the GPU once
                ours.round()
        one = seconds(ours.round, device, 60 if captured else 3)
        yield {"what": engine, "s a round": one, f"minutes of {ROUNDS} rounds": one * ROUNDS / 60}


def busy(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    from torch.profiler import ProfilerActivity, profile

    ours = Ours(WORKLOADS["W1"], device)
    rounds = 1 if quick else 3
    plain = seconds(ours.round, device, rounds)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    synchronise(device)
    begun = time.perf_counter()
    with profile(activities=activities) as seen:
        for _ in range(rounds):
            ours.round()
        synchronise(device)
    wall = time.perf_counter() - begun
    there = [event for event in seen.events() if event.device_type.name == device.upper()]
    spans = [event.time_range for event in there if not event.is_user_annotation]
    work = covered((span.start, span.end) for span in spans) / 1e6
    yield {"what": "W1", "share": work / wall, "without the profiler": work / rounds / plain, "wall s": wall}
    for event in sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)[:8]:
        yield {"what": event.key, "calls": event.count, "processor s": event.self_cpu_time_total / 1e6}
    if device == "cuda":
        kernels = [event for event in seen.key_averages() if event.device_type.name == "CUDA"]
        for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:8]:
            yield {"what": event.key, "calls": event.count, "device s": event.self_device_time_total / 1e6}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def profile(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Functions of fedbench in which the processor is, what they call of libraries included."""
    ours, at, within = Ours(WORKLOADS["W1"], device), Counter[Any](), Counter[Any]()
    own = str(ROOT / "fedbench")
    for _ in range(WARM_UP):
        ours.round()

    def sample(number: int, frame: Any) -> None:
        inside = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(own):
                inside.append(frame.f_code)
            frame = frame.f_back
        at.update(inside[:1])
        within.update(set(inside))
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # only now, so that no sample interrupts another one

    before = signal.signal(signal.SIGALRM, sample)
    begun = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while time.perf_counter() - begun < (2 if quick else 8):
            ours.round()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for code, count in at.most_common(12):
        what = f"{Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}"
        share = {"share": count / at.total(), "with fedbench's functions below": within[code] / at.total()}
        yield {"what": what, **share, "samples": count}


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


class Several(InProcess):
    """Hosts in one process, each with a learner of its own; for methods without private states."""

    def __init__(self, count: int, device: str) -> None:
        super().__init__()
        self.count, self.device = count, device

    def begin(self, setup: Any, parts: Any) -> None:
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
                driver: Any = Driver.of(run, Several(count, device), Recorder(folder, run.task))
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


def trials(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """One candidate and four seeds: four trials of the same cost."""
    from fedbench import grid
    from fedbench.results.plan import Plan

    first: Any = None
    ways: dict[str, tuple[int | None, dict[str, Any]]] = {
        "one after another": (1, {"gpus_per_host": 1}),
        "four, a quarter each": (AT_ONCE, {"gpus_per_trial": 1 / AT_ONCE}),
        "as many as fedbench chooses": (None, {}),
    }
    for what, (most, share) in ways.items():
        folder = Path(tempfile.mkdtemp(prefix="fedbench-gpu-")) / "grid"
        resources = {"hosts": 0, **(share if device == "cuda" else {"gpus_per_host": 0})}
        config = asked(WORKLOADS["W1"], {}, resources)
        config.data.val, config.seeds = 0.1, list(range(AT_ONCE))
        config = config.model_copy(update={"rounds": 2 if quick else 200, "out": folder})
        begun = time.perf_counter()
        result = grid(config, space={"train.lr": [0.01]}, baselines=[], trials=most)
        wall = time.perf_counter() - begun
        lines = timings(folder)
        scores = result.table.drop(columns=["folder"], errors="ignore")
        first = scores if first is None else first
        yield {
            "what": what,
            "trials": len(lines),
            "wall s": wall,
            "ms a round": 1000 * statistics.median(one for run in lines.values() for one in totals(run)),
            "GPU MB": [max(line["gpu_mb"] for line in run) for run in lines.values()],
            "said": Plan.read(folder).gpus,
            "same numbers": str(first.equals(scores)),
        }


def timings(folder: Path) -> dict[tuple[Path, int], list[dict[str, Any]]]:
    """The lines of every run below a folder."""
    found: dict[tuple[Path, int], list[dict[str, Any]]] = {}
    for file in sorted(folder.rglob("timings.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            found.setdefault((file, line["seed"]), []).append(line)
    return found


def totals(run: list[dict[str, Any]]) -> list[float]:
    """Seconds of the rounds of a run after those that capture steps."""
    return [line["total"] for line in run[:-1]][WARM_UP:] or [line["total"] for line in run]


def reproduction(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """A few rounds, and then as many of the published ones as there is time for."""
    begun = time.perf_counter()
    few, most = (1, 2) if quick else (20, PUBLISHED_ROUNDS)
    rows, one = reproduced(device, quick, few)
    yield from rows
    taken = time.perf_counter() - begun
    start = taken - few * one
    fitting = max(0, int(0.7 * (GIVEN.seconds - taken - start) / one))  # an estimate
    rounds = min(most, fitting if fitting < few else fitting // few * few)
    yield {"what": f"time for {rounds} rounds", "s a round of all runs": one, "s to start": start, "s so far": taken}
    if rounds > few:
        yield from reproduced(device, quick, rounds)[0]


def reproduced(device: str, quick: bool, rounds: int) -> tuple[list[dict[str, Any]], float]:
    """The numbers of a reproduction beside the published ones, and the seconds of one round of all its runs."""
    from fedbench import Config
    from fedbench.data.dataset import Dataset
    from fedbench_papers.tables.reproduce import reproduce

    source, folder = f"parquet:{GIVEN.photographs}", Path(tempfile.mkdtemp(prefix="fedbench-gpu-")) / "reproduction"
    at_once = AT_ONCE if find_spec("ray") else 1
    share = {"gpus_per_trial": 1 / at_once} if device == "cuda" else {"gpus_per_host": 0}
    config = Config(rounds=rounds, seeds=[0] if quick else [0, 1], resources={"hosts": 0, **share}, out=folder)
    choice: dict[str, Any] = {"cells": [CELL], "methods": REPRODUCED, "sources": {"cifar10": source}}
    begun = time.perf_counter()
    result = reproduce(EXPERIMENT, config, **choice, trials=at_once)
    wall, runs = time.perf_counter() - begun, timings(folder)
    record = json.loads((folder / "reproduction.json").read_text())
    numbers = json.loads(result.table.to_json(orient="records"))
    rows = [{"what": f"{number['method']}, {rounds} of {PUBLISHED_ROUNDS} rounds", **number} for number in numbers]
    about = {
        "what": f"{EXPERIMENT}, {CELL}, {rounds} of {PUBLISHED_ROUNDS} rounds",
        "runs": len(runs),
        "at once": at_once,
        "wall s": wall,
        "GPU MB": [max(line["gpu_mb"] for line in run) for run in runs.values()],
        "photographs, of 60,000": len(Dataset.load(Config(data=source).data).samples),
        "changed": record["changed"],
        "open": record["open"],
    }
    return [*rows, about], sum(statistics.median(totals(run)) for run in runs.values()) / at_once


def methods(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    from fedbench import Config, run
    from fedbench import methods as known

    for name in GIVEN.only or known.names():
        needs = {"public": {"size": 40}} if "public" in known.load(name).needs else {}
        found: dict[str, Any] = {}
        row: dict[str, Any] = {"what": name}
        for place in dict.fromkeys(("cpu", device)):
            both = ("loop", "graph") if place == "cuda" else ("loop",)
            for engine in both[-1:] if quick else both:
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
    "profile": profile,
    "evaluation": evaluation,
    "hosts": hosts,
    "ray": ray,
    "trials": trials,
    "methods": methods,
    "reproduction": reproduction,
}
MEANS = {
    "steps": "above 1: faster than the bare loop",
    "rounds": "above 1: faster than the bare loop",
    "cifar10": "whole rounds, evaluation off",
    "busy": "share of the time in which the device works, under the profiler and of rounds without it",
    "evaluation": "above 1: faster than the bare loop",
    "hosts": "whether the model is the same as by the loop on one host",
    "methods": "largest difference to the loop on the processor, in points",
    "reproduction": "in percent",
}


@dataclass(frozen=True)
class Step:
    """A step of a visit. seconds: of a visit of 570; what a step leaves of them is given to the later ones."""

    name: str
    seconds: float
    flags: Sequence[str]


VISIT = (
    Step("speed", 140, ("cifar10", "rounds", "busy", "profile")),
    Step("trials", 130, ("trials",)),
    Step("tests", 120, ("--check", "--quick", "hosts", "methods", "steps", "evaluation", "--only", *SOME_METHODS)),
    Step("reproduction", 180, ("reproduction",)),
)


def visit(folder: Path, common: Sequence[str]) -> int:
    """Every step in a process of its own, which ends at its limit; `NAME.json` and `NAME.log` are written meanwhile.

    Returns 0 if no step failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    end, failed = time.perf_counter() + GIVEN.seconds, False
    for number, step in enumerate(VISIT):
        limit = (end - time.perf_counter()) * step.seconds / sum(later.seconds for later in VISIT[number:])
        file, begun = folder / f"{step.name}.json", time.perf_counter()
        command = [sys.executable, "-u", __file__, *step.flags, *common]
        command += ["--json", str(file), "--seconds", f"{limit:.0f}"]
        with open(folder / f"{step.name}.log", "w") as log:
            child = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                ended = f"exit status {child.wait(limit)}"
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                ended = f"stopped at its limit, exit status {child.wait()}"
        failed |= child.returncode != 0
        found = json.loads(file.read_text()) if file.exists() else {}
        found["step"] = {"ended": ended, "seconds": time.perf_counter() - begun, "limit": limit}
        keep(found, file)
        print(f"{step.name}: {ended} after {found['step']['seconds']:.0f} of {limit:.0f} s", flush=True)
        print((folder / f"{step.name}.log").read_text()[-2500:], flush=True)
    return int(failed)


def machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "cores": cores()}


def told(row: dict[str, Any]) -> str:
    shown = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in row.items() if key != "what"}
    return f"  {row['what']}: " + ", ".join(f"{key} {value}" for key, value in shown.items())


def tests() -> int:
    """Those that need a GPU. Returns pytest's exit status."""
    files = [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in file.read_text()]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *files]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def possible(part: str) -> bool:
    """Whether what a part needs is here."""
    return bool(find_spec("ray")) if part in ("ray", "trials") else part != "reproduction" or bool(GIVEN.photographs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="those of the part methods")
    parser.add_argument("--quick", action="store_true", help="few repeats of small work")
    parser.add_argument("--check", action="store_true", help="all parts and the tests that need a GPU")
    parser.add_argument("--photographs", type=Path, metavar="FOLDER", help="with CIFAR-10 as parquet files")
    parser.add_argument("--visit", type=Path, metavar="DIR", help="all steps of a visit, with their results in DIR")
    parser.add_argument("--seconds", type=float, help="of the visit, or of the part reproduction (570)")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    given = parser.parse_args(argv, GIVEN)
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}: one of {', '.join(PARTS)}")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is here: --device cpu --quick shows what would be measured")
    if "reproduction" in given.parts and not given.photographs:
        parser.error("reproduction: needs --photographs FOLDER")
    for name in ("photographs", "visit", "json"):
        setattr(given, name, getattr(given, name) and getattr(given, name).absolute())
    os.chdir(ROOT)
    if given.visit:
        pictures = ["--photographs", str(given.photographs)] if given.photographs else []
        return visit(given.visit, ["--device", given.device, *["--quick"] * given.quick, *pictures])
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": machine(given.device)}
    print(", ".join(f"{key} {value}" for key, value in found["machine"].items()), flush=True)
    status = tests() if given.check else 0
    if given.check:
        found["tests"] = [{"what": "pytest", "exit status": status}]
        keep(found, given.json)
    for part in given.parts or filter(possible, PARTS):
        begun = time.perf_counter()
        print(": ".join(filter(None, (part, MEANS.get(part)))), flush=True)
        rows = found[part] = []
        try:
            for row in PARTS[part](given.device, given.quick):
                rows.append(row)
                print(told(row), flush=True)
                keep(found, given.json)
        except Exception as error:
            status = 1
            rows.append({"what": "failed", "why": f"{type(error).__name__}: {error}"})
            traceback.print_exc()
        keep(found, given.json)
        print(f"  ({time.perf_counter() - begun:.0f} s)", flush=True)
    return status


def keep(found: dict[str, Any], file: Path | None) -> None:
    if file:
        write_atomically(file, json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
