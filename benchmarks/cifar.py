"""Every method on CIFAR-10 under one protocol: 10 clients, two classes of 50 images each, avgcnn.

    python benchmarks/cifar.py PARQUET_FOLDER [METHOD ...] [--rounds 30] [--out results/cifar]

Batch 20, 5 epochs, learning rate 0.05 without momentum, or the method's own where its specification sets one. One seed
in one process. The first rounds are a plateau in which every model knows one class. Finished runs are kept: the same
command goes on where it was. Prints a table.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

PUBLIC = 500
TRAIN = {"batch_size": 20, "epochs": 5, "lr": 0.05, "momentum": 0.0, "weight_decay": 0.0}


def asked_of(method: str, source: Path, rounds: int, out: Path) -> Any:
    """The protocol for one method, which keeps the training options that it sets itself."""
    from fedbench import methods
    from fedbench.config import Config

    kind = methods.load(method)
    own = {key.removeprefix("train.") for key in kind.train_defaults}
    return Config(
        method=method,
        data=f"parquet:{source}",
        partition={"name": "shards", "clients": 10, "classes": 2, "images": 50, "test_images": 40},
        public={"size": PUBLIC if "public" in kind.needs else 0},
        model="avgcnn",
        train={key: value for key, value in TRAIN.items() if key not in own},
        rounds=rounds,
        evaluate={"every": 5},
        resources={"hosts": 0},
        out=out / method,
    )


def row(method: str, result: Any) -> str:
    last = result.metrics[result.metrics["round"] == result.metrics["round"].max()].set_index("point")
    accuracy = [f"{100 * last['test_accuracy'][point]:.1f}" for point in ("after_fit", "after_agg")]
    whole = f"{100 * last['test_accuracy']['global']:.1f}" if "global" in last.index else ""
    timings = [json.loads(line) for line in (result.folder / "timings.jsonl").read_text().splitlines()]
    seconds = sorted(line["train"] + line["server"] for line in timings[:-1])
    cost = last.loc["after_fit"]
    up, down = (f"{cost[name] / 1e6:.2f}" for name in ("bytes_up", "bytes_down"))
    return f"| {method} | {accuracy[0]} | {accuracy[1]} | {whole} | {seconds[len(seconds) // 2]:.2f} | {up} | {down} |"


def main() -> None:
    from fedbench.errors import ConfigError
    from fedbench.methods import names
    from fedbench.studies.run import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with CIFAR-10 as parquet files")
    parser.add_argument("methods", nargs="*", help="methods; default: all")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/cifar"))
    asked = parser.parse_args()
    print("| method | after_fit | after_agg | global | s/round | MB up | MB down |\n" + "|---" * 7 + "|", flush=True)
    for method in asked.methods or names():
        try:
            result = run(asked_of(method, asked.source.absolute(), asked.rounds, asked.out), report=False)
        except ConfigError as error:
            parser.error(str(error))
        print(row(method, result), flush=True)


if __name__ == "__main__":
    main()
