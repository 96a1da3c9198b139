"""`fedbench report DIR`: (re)makes the page of a run or a grid."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedbench.errors import ConfigError
from fedbench.report import make_report


def main(argv: Sequence[str] | None = None) -> int:
    """Writes report.html into the folder and prints its path; 2 for a folder without results."""
    parser = argparse.ArgumentParser(prog="fedbench report", description="(Re)make report.html of a run or a grid.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a run or of a grid")
    folder = parser.parse_args(argv).folder
    try:
        print(make_report(folder))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
