"""Memory of a run: 100 avgcnn clients on two hosts, proportional set size of all processes together.

    python benchmarks/memory.py [--method fedcac] [--rounds 50] [--json]

Proportional set size counts shared pages once; the memory-mapped data set is counted too and is small here.
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.throughput import Ours, Workload

LIMIT_MB = 3500


def process_tree(root: int) -> list[int]:
    """The process and all below it."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found, new = [root], [root]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1


def pss_mb(process: int) -> float:
    """Proportional set size of a process in MB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="fedcac")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    from fedbench.errors import nearest
    from fedbench.methods import names

    if asked.method not in names():
        parser.error(f"no method {asked.method}: {nearest(asked.method, names())}")
    if asked.rounds < 10:
        parser.error("--rounds is at least 10: the second tenth of them is compared with the last")
    from fedbench.config import Config
    from fedbench.runtime.ray import cluster

    os.chdir(Path(__file__).resolve().parent.parent)
    workload = Workload("avgcnn", (3, 32, 32), 50, 100, 100, 50, 1, method=asked.method)
    measured = []
    with cluster.connect(Config(resources={"hosts": 2})):
        ours = Ours(workload, 2, "32-true", "auto")
        for _ in range(asked.rounds):
            ours.round()
            measured.append(sum(map(pss_mb, process_tree(os.getpid()))))
        ours.close()
    tenth = len(measured) // 10
    found = {
        "first_mb": round(max(measured[tenth : 2 * tenth]), 1),
        "last_mb": round(max(measured[-tenth:]), 1),
        "peak_mb": round(max(measured), 1),
        "limit_mb": LIMIT_MB,
        "rounds": asked.rounds,
    }
    print(json.dumps(found) if asked.json else ", ".join(f"{key} {value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
