"""The page of a study: one HTML file that opens from disk without network."""

import logging
from pathlib import Path


def make_report(folder: str | Path) -> Path:
    """Writes report.html and its tables into the folder of a run or a study of any kind and returns the page's path.

    Raises ConfigError when the folder holds none of them.
    """
    logging.getLogger("fedbench").info("writing the page")  # before the libraries for it are loaded
    from fedbench.plugins import PAGES, installed
    from fedbench.report import matrix, page
    from fedbench.results.matrix import is_matrix

    folder = Path(folder)
    if is_matrix(folder):
        return matrix.write_matrix(folder)
    added = next((point.load() for file, point in installed(PAGES).items() if (folder / file).exists()), None)
    return (added or page.write_page)(folder)
