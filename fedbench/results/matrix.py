"""matrix.json: the same methods compared in several settings, each a comparison in a folder of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedbench.results.files import read_as, write_json_atomically
from fedbench.results.plan import point_name

FILE = "matrix.json"


@dataclass(frozen=True)
class Setting:
    """One of them. values: what sets it apart, by dotted key; path: of its comparison, relative to the matrix."""

    name: str
    values: dict[str, Any]
    path: str


@dataclass(frozen=True)
class Matrix:
    """A study over settings. config: what was asked in all of them, as a tree; over: the values of every key."""

    config: dict[str, Any]
    over: dict[str, list[Any]]
    settings: list[Setting]

    @classmethod
    def read(cls, folder: Path) -> "Matrix":
        """Raises ConfigError where it is damaged."""
        return read_as(cls, folder / FILE)

    def write(self, folder: Path) -> None:
        write_json_atomically(folder / FILE, asdict(self))


def settings_of(over: Mapping[str, Sequence[Any]]) -> list[Setting]:
    """All combinations of the values, the last key changing fastest."""
    points = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    return [Setting(name := setting_name(point), point, f"settings/{name}") for point in points]


def setting_name(values: Mapping[str, Any]) -> str:
    """`{"data": "parquet:/sets/cifar10", "partition.alpha": 0.1}` -> `data=cifar10,alpha=0.1`."""
    return point_name({k: v.rpartition("/")[2] if isinstance(v, str) else v for k, v in values.items()})


def is_matrix(folder: Path) -> bool:
    """Whether the folder holds a study over settings."""
    return (folder / FILE).exists()
