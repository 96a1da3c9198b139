"""claims.json: the tested rows, under what conditions, and the file that is shipped with the package."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedbench.results.files import read_as, write_json_atomically
from fedbench_papers.claims.conditions import Conditions

CLAIMS_FILE = "claims.json"
RECORDED = Path(__file__).with_name("recorded.json")
"""The verdicts on all rows, made under their own conditions and shipped with the package."""


@dataclass(frozen=True)
class ClaimsRecord:
    """Every row with its results, and the conditions of all (`Conditions`)."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    scale: float = 1.0
    rounds: int | None = None
    seeds: list[int] | None = None

    @classmethod
    def of(cls, rows: list[dict[str, Any]], conditions: Conditions) -> "ClaimsRecord":
        return cls(rows, **conditions.tree())

    @classmethod
    def read(cls, file: Path) -> "ClaimsRecord":
        """Raises ConfigError if the file is damaged or missing."""
        return read_as(cls, file)

    def write(self, file: Path) -> None:
        write_json_atomically(file, asdict(self))

    @property
    def conditions(self) -> Conditions:
        return Conditions(self.scale, self.rounds, None if self.seeds is None else tuple(self.seeds))

    @property
    def entries(self) -> dict[str, Mapping[str, Any]]:
        """The rows by id."""
        return {row["id"]: row for row in self.rows}
