"""Seconds until the question of `fedbench demo` has its answer, by the engine that the study chooses and by the loop.

    python benchmarks/verdict_time.py [--engines auto loop] [--json]

Each is run in a folder of its own and in processes of its own, as a user would start it, one after the other. The
compiler's cache is that of this machine; TORCHINDUCTOR_CACHE_DIR=$(mktemp -d) begins with an empty one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ("grid", "--method", "fedcac", "--until-decided", "--margin", "2")
"""What `fedbench demo` runs."""


def seconds_by(engine: str) -> float:
    """Wall time of the command from an empty folder."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "fedbench", *COMMAND, "--train.engine", engine],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["auto", "loop"])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for engine in asked.engines:
        took = seconds_by(engine)
        line = json.dumps({"engine": engine, "seconds": round(took, 1)})
        print(line if asked.json else f"{engine:9} {took:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
