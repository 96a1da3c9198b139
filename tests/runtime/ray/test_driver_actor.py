"""All processes of a run start at the same time."""

import subprocess
import sys


def test_an_actor_starts_without_what_takes_long_to_import():
    asked = (
        "import sys, fedbench.runtime.ray.driver_actor, fedbench.runtime.ray.hosts; "
        "print({'torch', 'lightning', 'ray', 'pandas'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "set()\n"
