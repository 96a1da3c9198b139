"""Reports of studies: one HTML file each, which opens offline."""

import logging
from collections.abc import Callable
from pathlib import Path


def make_report(folder: str | Path) -> Path:
    """Writes report.html and its tables into the folder of a run or a study and returns the report's path.

    Raises ConfigError if the folder holds neither.
    """
    say_writing()
    return write_report(folder)


def say_writing() -> None:
    """Says so on stderr; before loading the libraries for it."""
    logging.getLogger("fedbench").info("writing the report")


def write_report(folder: str | Path) -> Path:
    """As `make_report`, without a word."""
    from fedbench.plugins import PAGES
    from fedbench.results.settings_file import is_matrix

    folder = Path(folder)
    added = None if is_matrix(folder) else next((file for file in PAGES.names() if (folder / file).exists()), None)
    if added is None:
        from fedbench.report import page

        return page.write_page(folder)
    write: Callable[[Path], Path] = PAGES.load(added)
    return write(folder)
