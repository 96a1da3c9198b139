"""claims.json: the tested rows, under what conditions, and the file that is shipped with the package."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from fedbench.results.files import read_as, write_json_atomically
from fedbench_papers.claims.conditions import Conditions

CLAIMS_FILE = "claims.json"
RECORDED = Path(__file__).with_name("recorded.json")
"""The verdicts on all rows, made under their own conditions and shipped with the package."""

TEXTS = ("id", "status", "statement", "where", "effect", "setting", "setting_text", "command")
ROW = {**dict.fromkeys(TEXTS, str), **dict.fromkeys(("parts", "seeds", "uses", "open"), list), "arms": dict}
NUMBER = float | int | None
PART = {
    **dict.fromkeys(("part", "case", "rule", "point", "verdict", "other", "note"), str),
    **dict.fromkeys(("delta", "p", "mean", "low", "high", "best"), NUMBER),
    "judged": bool,
    "values": list,
}
"""The kinds of what tables and pages read of a row, and of each of its parts."""


def checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row that has what tables and pages read. Raises ValueError for another one."""
    _check(row, ROW)
    for part in row["parts"]:
        _check(part, PART)
    return row


def _check(tree: Any, kinds: Mapping[str, Any]) -> None:
    for key, kind in kinds.items():
        if not (isinstance(tree, dict) and key in tree and isinstance(tree[key], kind)):
            raise ValueError(f"{key} is missing or of another kind")


@dataclass(frozen=True)
class ClaimsRecord:
    """Every row with its results, and the conditions of all (`Conditions`)."""

    rows: list[Annotated[dict[str, Any], AfterValidator(checked_row)]] = field(default_factory=list)
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
