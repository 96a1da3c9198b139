"""What a round of each method costs at 100 avgcnn clients: the server half's share, and seconds per gradient step.

    python benchmarks/methods.py [METHOD ...] [--rounds 2] [--images 20] [--json]

One process, everybody takes part for 5 epochs, evaluation off. The last column compares seconds of local work per
gradient step with those of fedavg in the same run: above 1 is what a method does beside its steps.
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

PUBLIC = 100


def cost(method: str, rounds: int, images: int, clients: int) -> dict[str, float]:
    """Medians over the rounds after the first."""
    from fedbench import methods
    from fedbench.config import Config
    from fedbench.experiments.resolve import resolve
    from fedbench.runtime.driver import Driver, SeedRun
    from fedbench.runtime.placement import InProcess

    public = PUBLIC if methods.load(method).needs_public else 0
    config, dataset = resolve(
        Config(
            method=method,
            data={"name": "benchmarks.throughput:random_images", "val": 0, "images": images * clients + 2 * public},
            partition={"name": "iid", "clients": clients},
            public={"size": public},
            model="avgcnn",
            train={"batch_size": 20, "epochs": 5},
            rounds=10**6,
            evaluate={"every": 10**6},
            checkpoint={"every": 0},
            resources={"hosts": 0},
        )
    )
    folder = Path(tempfile.mkdtemp(prefix="fedbench-methods-"))
    run = SeedRun(Driver(config, folder, InProcess(dataset), dataset), 0)
    run.begin()
    steps = []
    for round in range(1, rounds + 2):
        run.round(round)
        steps.append(run.pending.steps)
    run.end()
    lines = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()][1:]
    median = lambda values: statistics.median(list(values))  # noqa: E731
    return {
        "round_s": median(line["total"] for line in lines),
        "server_s": median(line["server"] for line in lines),
        "server_share": median(line["server"] / line["total"] for line in lines),
        "step_ms": median(1000 * line["train"] / max(1, s) for line, s in zip(lines, steps[1:], strict=True)),
        "steps": median(steps[1:]),
    }


def main() -> None:
    from fedbench.methods import METHODS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="methods; default: all")
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds of each")
    parser.add_argument("--images", type=int, default=20, help="training images per client")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="one JSON object keyed by method")
    asked = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    found: dict[str, Any] = {}
    for method in dict.fromkeys(["fedavg", *(asked.methods or METHODS)]):
        found[method] = row = cost(method, asked.rounds, asked.images, asked.clients)
        row["step"] = row["step_ms"] / found["fedavg"]["step_ms"]
        if not asked.json:
            print(
                f"{method:12} round {row['round_s']:6.2f} s, server {1000 * row['server_s']:7.1f} ms = "
                f"{100 * row['server_share']:4.1f} %, {row['steps']:5.0f} steps of {row['step']:.2f}",
                flush=True,
            )
    if asked.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
