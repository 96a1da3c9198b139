"""The page of a study: one HTML file that opens from disk without network."""

from pathlib import Path


def make_report(folder: str | Path) -> Path:
    """Writes report.html into a run's or a grid's folder and returns its path.

    Raises ConfigError when the folder holds neither.
    """
    from fedbench.report.page import write_page

    return write_page(Path(folder))
