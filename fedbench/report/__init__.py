"""The page of a study: one HTML file that opens from disk without network."""

import logging
from pathlib import Path


def make_report(folder: str | Path) -> Path:
    """Writes report.html and its tables into the folder of a run or a study of any kind and returns the page's path.

    Raises ConfigError when the folder holds none of them.
    """
    logging.getLogger("fedbench").info("writing the page")  # before the libraries for it are loaded
    from fedbench.report import claims, matrix, page, published
    from fedbench.results.matrix import FILE as MATRIX
    from fedbench.results.published import FILE as REPRODUCTION

    kinds = {MATRIX: matrix.write_matrix, REPRODUCTION: published.write_published, claims.FILE: claims.write_claims}
    write = next((own for file, own in kinds.items() if (Path(folder) / file).exists()), page.write_page)
    return write(Path(folder))
