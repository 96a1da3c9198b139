"""`fedbench report DIR`: writes the report of a run or a study again, or an index of many."""

from pathlib import Path

from fedbench.cli import OK, command
from fedbench.errors import ConfigError
from fedbench.report import say_writing, write_report

USAGE = """usage: fedbench report DIR

Writes report.html of a run or a study again from its records, and prints its path.

Of a folder of runs and studies, such as results/, writes index.html: a line for each with its data, methods, seeds,
state and answer, and a link to its page. It also writes pages that are missing or older than their study."""


@command
def main(argv: list[str]) -> int:
    """Writes report.html or index.html into the folder and prints its path.

    Raises ConfigError for a folder without results.
    """
    words = [word for word in argv if word != "--debug"]
    if "-h" in words or "--help" in words:
        print(USAGE)
        return OK
    if len(words) != 1 or words[0].startswith("-"):
        asked = " ".join(["report", *words])
        raise ConfigError(f"{asked}: give one folder, for example `fedbench report results/run/NAME`")
    folder = Path(words[0]).expanduser()
    say_writing()
    print(_write_index(folder) if _holds_results(folder) else write_report(folder))
    return OK


def _holds_results(folder: Path) -> bool:
    """Whether results lie below the folder, which is none itself."""
    from fedbench.report.index import is_page_folder, page_folders

    return folder.is_dir() and not is_page_folder(folder) and any(page_folders(folder))


def _write_index(folder: Path) -> Path:
    """Writes the index of a folder; the libraries for it are loaded late."""
    from fedbench.report import index

    return index.write_index(folder)
