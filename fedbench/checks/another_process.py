"""A method's run once more in a process of its own, in which `hash` gives other numbers and sets another order.

Numbers that depend on either are the same again in one process, and others in the next.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.method_runs import MethodRuns, Record, read
from fedbench.errors import ConfigError
from fedbench.import_string import only_here

HASH_SEED = "PYTHONHASHSEED"


def records_of_another_process(method: MethodRuns) -> Record:
    """The records of the plain run. Raises CheckFailure if it fails there.

    Raises DoesNotApply if another process cannot have the class, model or data.
    """
    if only_here(method.name):
        raise DoesNotApply(f"{method.kind.__name__} is in no file that another process can import")
    folder = method.folder_for("process")
    try:
        asked = json.dumps([method.name, method.options, dict(method.given), str(folder)])
    except TypeError:
        raise DoesNotApply("options, model or data are objects of this process") from None
    seed = "1" if os.environ.get(HASH_SEED) != "1" else "2"
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "fedbench.checks.another_process", asked],
        env={**os.environ, HASH_SEED: seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        kind, _, why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1].partition(": ")
        if kind.endswith(ConfigError.__name__):
            raise DoesNotApply(f"another process cannot have it: {why}")
        raise CheckFailure(f"it runs here and fails in another process: {why or kind}")
    return read(folder)


def main() -> None:
    name, options, given, folder = json.loads(sys.argv[1])
    runs = MethodRuns(name, options, given)
    runs.play(runs.config("plain"), folder=Path(folder))


if __name__ == "__main__":
    main()
