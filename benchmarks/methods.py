"""What a round of each method costs at 100 avgcnn clients: the server half's share, and local work against its passes.

    python benchmarks/methods.py [METHOD ...] [--rounds 2] [--images 20] [--batch 20] [--repeats 1] [--json]

One process, everybody takes part for 5 epochs, evaluation off. Local work is compared with that of fedavg, whose
rounds alternate with the method's: its seconds, and the passes that it makes, counted where the model is called: three
for an image that is trained on (forward, and backward for twice that), one for an image that is looked at. Seconds
above passes are what a method does beside its passes. The same work takes some per cent more or less time wherever
its vectors happen to lie: `--repeats` runs both anew and gives medians. Of all methods, those that the asked numbers do
not fit are left out, with a line that says why.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

PUBLIC, BATCH = 100, 20


class Passes:
    """Counts the images that go through a model, three times where a gradient follows."""

    def __init__(self) -> None:
        import torch

        self.total, self._torch = 0.0, torch
        torch.nn.modules.module.register_module_forward_pre_hook(self._seen)

    def _seen(self, module: Any, inputs: Any) -> None:
        from lightning import LightningModule

        if isinstance(module, LightningModule) and inputs:
            self.total += self._images(inputs[0]) * (3 if self._torch.is_grad_enabled() else 1)

    def _images(self, batch: Any) -> float:
        """Under `vmap` a batch looks like a single image."""
        functorch, each = self._torch._C._functorch, batch[0].numel()
        while functorch.is_functorch_wrapped_tensor(batch):
            batch = functorch.get_unwrapped(batch)
        return batch.numel() / each


class Rounds:
    """A run of one method whose rounds are asked for one by one, and what each of them cost."""

    def __init__(self, method: str, images: int, clients: int, passes: Passes, batch: int = BATCH) -> None:
        from fedbench import methods
        from fedbench.config import Config
        from fedbench.jobs.resolve import resolve
        from fedbench.runtime.driver import Driver
        from fedbench.runtime.hosts import InProcess
        from fedbench.runtime.observers.recorder import Recorder

        public = PUBLIC if "public" in methods.load(method).needs else 0
        resolved = resolve(
            Config(
                method=method,
                data={"name": "benchmarks.throughput:random_images", "val": 0, "images": images * clients + public},
                partition={"name": "iid", "clients": clients},
                public={"size": public},
                model="avgcnn",
                train={"batch_size": batch, "epochs": 5},
                rounds=10**6,
                evaluate={"every": 10**6},
                checkpoint={"every": 0},
                resources={"hosts": 0},
            )
        )
        self.folder = Path(tempfile.mkdtemp(prefix="fedbench-methods-"))
        self.run = Driver.of(resolved, InProcess(), Recorder(self.folder, resolved.task))
        self.run.begin()
        self.counted, self.done = passes, 0
        self.steps: list[int] = []
        self.passes: list[float] = []

    def next(self) -> None:
        before = self.counted.total
        self.run.exchange(self.done)
        self.done += 1
        self.steps.append(self.run.record.steps)
        self.passes.append(self.counted.total - before)

    def cost(self) -> dict[str, float]:
        """Medians over the rounds after the first."""
        self.run.end()
        lines = [json.loads(line) for line in (self.folder / "timings.jsonl").read_text().splitlines()][1:]
        median = lambda values: statistics.median(list(values))  # noqa: E731
        return {
            "round_s": median(line["total"] for line in lines),
            "server_s": median(line["server"] for line in lines),
            "server_share": median(line["server"] / line["total"] for line in lines),
            "local_s": median(line["train"] for line in lines),
            "steps": median(self.steps[1:]),
            "passes": median(self.passes[1:]),
        }


def cost(method: str, rounds: int, work: tuple[int, int, Passes, int], late: bool) -> dict[str, float]:
    """What a method costs, and its local work and passes by those of fedavg, whose rounds alternate with its own.

    work: images, clients, passes and batch of both, as `Rounds` takes them; late: the method is built and run after
    fedavg, else before.
    """
    runs = [Rounds(name, *work) for name in (("fedavg", method) if late else (method, "fedavg"))]
    for _ in range(rounds + 1):
        for run in runs:
            run.next()
    base, found = (run.cost() for run in (runs if late else reversed(runs)))
    return found | {
        "local_ratio": found["local_s"] / base["local_s"],
        "passes_ratio": found["passes"] / base["passes"],
    }


def main() -> None:
    from fedbench.errors import ConfigError, nearest
    from fedbench.methods import names

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="methods; default: all")
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds of each")
    parser.add_argument("--images", type=int, default=20, help="training images per client")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--batch", type=int, default=BATCH, help="images per gradient step")
    parser.add_argument("--repeats", type=int, default=1, help="how often both are built and run anew")
    parser.add_argument("--json", action="store_true", help="one JSON object keyed by method")
    asked = parser.parse_args()
    unknown = [name for name in asked.methods if name not in names()]
    if unknown:
        parser.error(f"no method {unknown[0]}: {nearest(unknown[0], names())}")
    if min(asked.rounds, asked.images, asked.clients, asked.batch, asked.repeats) < 1:
        parser.error("--rounds, --images, --clients, --batch and --repeats are at least 1")
    os.chdir(Path(__file__).resolve().parent.parent)
    found: dict[str, Any] = {}
    passes = Passes()
    for method in asked.methods or names():
        try:
            rows = [
                cost(method, asked.rounds, (asked.images, asked.clients, passes, asked.batch), late=n % 2 == 0)
                for n in range(asked.repeats)
            ]
        except ConfigError as error:
            if asked.methods:
                parser.error(str(error))
            print(f"{method:12} left out: {error}", file=sys.stderr, flush=True)
            continue
        found[method] = row = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        if not asked.json:
            print(
                f"{method:12} round {row['round_s']:6.2f} s, server {1000 * row['server_s']:7.1f} ms = "
                f"{100 * row['server_share']:4.1f} %, {row['steps']:5.0f} steps, local work "
                f"{row['local_ratio']:.2f} of fedavg's, passes {row['passes_ratio']:.2f}",
                flush=True,
            )
    if asked.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
