"""`fedbench report DIR`: (re)makes the page of a run or a study."""

from pathlib import Path

from fedbench.cli import OK, command
from fedbench.errors import ConfigError
from fedbench.report import make_report

USAGE = """usage: fedbench report DIR

(Re)makes report.html in the folder of a run or of a study from the records there, and prints its path."""


@command
def main(argv: list[str]) -> int:
    """Writes report.html into the folder and prints its path; a folder without results is a mistake."""
    words = [word for word in argv if word != "--debug"]
    if "-h" in words or "--help" in words:
        print(USAGE)
        return OK
    if len(words) != 1 or words[0].startswith("-"):
        asked = " ".join(["report", *words])
        raise ConfigError(f"{asked}: one folder is expected, for example `fedbench report results/run/NAME`")
    print(make_report(Path(words[0]).expanduser()))
    return OK
