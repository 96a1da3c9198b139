"""`fedbench report DIR`: writes the report of a run or a study again."""

from pathlib import Path

from fedbench.cli import OK, command
from fedbench.errors import ConfigError
from fedbench.report import make_report

USAGE = """usage: fedbench report DIR

Writes report.html of a run or a study again from its records, and prints its path."""


@command
def main(argv: list[str]) -> int:
    """Writes report.html into the folder and prints its path. Raises ConfigError for a folder without results."""
    words = [word for word in argv if word != "--debug"]
    if "-h" in words or "--help" in words:
        print(USAGE)
        return OK
    if len(words) != 1 or words[0].startswith("-"):
        asked = " ".join(["report", *words])
        raise ConfigError(f"{asked}: give one folder, for example `fedbench report results/run/NAME`")
    print(make_report(Path(words[0]).expanduser()))
    return OK
