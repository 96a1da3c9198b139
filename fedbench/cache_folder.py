"""The folder of the cache, in which decoded data, published files and answers of commands are kept."""

import os
from pathlib import Path


def root() -> Path:
    """`$FEDBENCH_CACHE`, or `~/.cache/fedbench`."""
    return Path(os.environ.get("FEDBENCH_CACHE") or Path.home() / ".cache" / "fedbench").expanduser().absolute()
