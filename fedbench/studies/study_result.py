"""The result of a study called from Python: a folder, a page and a table."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import pandas as pd


@dataclass(frozen=True)
class StudyResult:
    """A study in its folder."""

    folder: Path
    file: ClassVar[str] = "table.csv"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def table(self) -> pd.DataFrame:
        """The study's rows, read on first access."""
        return pd.read_csv(self.folder / self.file)
