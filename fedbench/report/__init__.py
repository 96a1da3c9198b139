"""Reports of studies: one HTML file each, which opens offline."""

import logging
from pathlib import Path


def make_report(folder: str | Path) -> Path:
    """Writes report.html and its tables into the folder of a run or a study and returns the report's path.

    Raises ConfigError if the folder holds neither.
    """
    logging.getLogger("fedbench").info("writing the report")  # before loading the libraries for it
    from fedbench.report import claims, matrix, page, published
    from fedbench.results.matrix import FILE as MATRIX
    from fedbench.results.published import FILE as REPRODUCTION

    kinds = {MATRIX: matrix.write_matrix, REPRODUCTION: published.write_published, claims.FILE: claims.write_claims}
    write = next((own for file, own in kinds.items() if (Path(folder) / file).exists()), page.write_page)
    return write(Path(folder))
