"""How far accuracies by the compiled engine are from those by the loop, beside what rounding alone does.

    python benchmarks/engines.py [METHOD ...] [--rounds 20] [--seeds 0 1] [--json]

Every method on digits with its defaults, by both engines, and by the loop with a learning rate that is moved by two
parts in ten million, up and down, which is what rounding to float32 does. A difference is that of the accuracy of the
last round, in points, mean over clients: the largest over seeds and evaluation points. Methods that the compiled
engine cannot step train by the loop there too.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

PUBLIC = 100
MOVED = 2e-7
"""Relative change of the learning rate, about two units in the last place of float32."""


def accuracies(method: str, rounds: int, seeds: Sequence[int], engine: str, factor: float = 1.0) -> Any:
    """Mean accuracy over clients in the last round by seed and point."""
    from fedbench import methods
    from fedbench.config import Config
    from fedbench.jobs.resolve import resolve
    from fedbench.studies.run import run

    config = Config(
        method=method,
        data="digits",
        partition={"name": "dirichlet", "clients": 10, "alpha": 0.5},
        public={"size": PUBLIC if "public" in methods.load(method).needs else 0},
        model="mlp",
        train={"engine": engine},
        rounds=rounds,
        seeds=seeds,
        evaluate={"every": rounds},
        checkpoint={"every": 0},
        resources={"hosts": 0},
    )
    config.train.lr = resolve(config).config.train.lr * factor
    with tempfile.TemporaryDirectory(prefix="fedbench-engines-") as out:
        result = run(config.model_copy(update={"out": Path(out)}), report=False)
        last = result.metrics[result.metrics["round"] == rounds]
        return last.set_index(["seed", "point"])["test_accuracy"].dropna()


def compared(method: str, rounds: int, seeds: Sequence[int]) -> dict[str, Any]:
    by_loop, by_rows = (accuracies(method, rounds, seeds, engine) for engine in ("loop", "compiled"))
    moved = [accuracies(method, rounds, seeds, "loop", factor) for factor in (1 + MOVED, 1 - MOVED)]
    return {
        "method": method,
        "accuracy": 100 * by_loop.mean(),
        "engines differ by": 100 * (by_rows - by_loop).abs().max(),
        "rounding": 100 * max((scores - by_loop).abs().max() for scores in moved),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    from fedbench.methods import names

    if not asked.json:
        print(f"{'method':12} {'accuracy':>8} {'engines differ by':>18} {'rounding':>9}")
    for method in asked.methods or names():
        row = compared(method, asked.rounds, asked.seeds)
        if asked.json:
            print(json.dumps(row), flush=True)
        else:
            numbers = f"{row['accuracy']:8.2f} {row['engines differ by']:18.2f} {row['rounding']:9.2f}"
            print(f"{method:12} {numbers}", flush=True)


if __name__ == "__main__":
    main()
