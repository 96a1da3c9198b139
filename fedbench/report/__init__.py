"""The page of a study: one HTML file that opens from disk without network."""

from pathlib import Path


def make_report(folder: str | Path) -> Path:
    """Writes report.html into the folder of a run or a study, with its tables, and returns its path.

    Raises ConfigError when the folder holds neither.
    """
    from fedbench.report.matrix import write_matrix
    from fedbench.report.page import write_page
    from fedbench.report.published import write_published
    from fedbench.results.matrix import is_matrix
    from fedbench.results.published import is_reproduction

    folder = Path(folder)
    if is_reproduction(folder):
        return write_published(folder)
    return write_matrix(folder) if is_matrix(folder) else write_page(folder)
