"""`fedbench report DIR`: writes the report of a run or a study again, or an index of many."""

from functools import partial
from pathlib import Path

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.errors import ConfigError
from fedbench.report import say_writing, write_report

USAGE = """usage: fedbench report DIR

Writes report.html of a run or a study again from its records, and prints its path.

Of a folder of runs and studies, such as results/, writes index.html: a line for each with its data, methods, seeds,
state and answer, and a link to its page. It also writes pages that are missing or older than their study."""


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Writes report.html or index.html into the folder and prints its path.

    Raises ConfigError for a folder without results.
    """
    if len(argv) != 1 or argv[0].startswith("-"):
        call = " ".join(["report", *argv])
        raise ConfigError(f"{call}: give one folder, for example `fedbench report results/run/NAME`")
    folder = Path(argv[0]).expanduser()
    say_writing()
    from fedbench.report.index import is_page_folder, page_folders, write_index

    holds_results = folder.is_dir() and not is_page_folder(folder) and any(page_folders(folder))
    print(write_index(folder) if holds_results else write_report(folder))
    return OK
