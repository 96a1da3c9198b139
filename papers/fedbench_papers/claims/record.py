"""claims.json: the tested rows, under what conditions, and the file that is shipped with the package."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from fedbench.results.files import read_as, write_json_atomically
from fedbench_papers.claims.conditions import Conditions

CLAIMS_FILE = "claims.json"
RECORDED = Path(__file__).with_name("recorded.json")
"""The verdicts on all rows, made under their own conditions and shipped with the package."""


class PartShape(TypedDict):
    """What tables and pages read of a part of a row."""

    part: str
    case: str
    rule: str
    point: str
    verdict: str
    other: str
    note: str
    delta: float | None
    p: float | None
    mean: float | None
    low: float | None
    high: float | None
    best: float | None
    judged: bool
    values: list[Any]


class RowShape(TypedDict):
    """What tables and pages read of a row."""

    id: str
    status: str
    statement: str
    where: str
    effect: str
    setting: str
    setting_text: str
    command: str
    parts: list[PartShape]
    seeds: list[Any]
    uses: list[Any]
    open: list[Any]
    arms: dict[str, Any]


ROW = TypeAdapter(RowShape)


def checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row that has what tables and pages read. Raises ValueError for another one."""
    try:
        ROW.validate_python(row, strict=True)
    except ValidationError as error:
        key = next(str(place) for place in reversed(error.errors()[0]["loc"]) if isinstance(place, str))
        raise ValueError(f"{key} is missing or of another kind") from None
    return row


@dataclass(frozen=True)
class ClaimsRecord:
    """Every row with its results, and the conditions of all (`Conditions`)."""

    rows: list[Annotated[dict[str, Any], AfterValidator(checked_row)]] = field(default_factory=list)
    scale: float = 1.0
    rounds: int | None = None
    seeds: tuple[int, ...] | None = None

    @classmethod
    def of(cls, rows: list[dict[str, Any]], conditions: Conditions) -> "ClaimsRecord":
        return cls(rows, **asdict(conditions))

    @classmethod
    def read(cls, file: Path) -> "ClaimsRecord":
        """Raises ConfigError if the file is damaged or missing."""
        return read_as(cls, file)

    def write(self, file: Path) -> None:
        write_json_atomically(file, asdict(self))

    @property
    def conditions(self) -> Conditions:
        return Conditions(self.scale, self.rounds, self.seeds)

    @property
    def entries(self) -> dict[str, Mapping[str, Any]]:
        """The rows by id."""
        return {row["id"]: row for row in self.rows}
