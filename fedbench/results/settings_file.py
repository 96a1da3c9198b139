"""matrix.json: the same methods compared in several settings, each a comparison in a folder of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path, PurePath
from typing import Any

from fedbench.results.files import read_as, write_json_atomically
from fedbench.results.plan import point_name, text_of
from fedbench.results.run_files import config_faults

MATRIX_FILE = "matrix.json"


@dataclass(frozen=True)
class Setting:
    """A setting. values: what sets it apart, by dotted key; path: of its comparison, relative to the matrix."""

    name: str
    values: dict[str, Any]
    path: str


@dataclass(frozen=True)
class SettingsFile:
    """A study over settings. config: what was asked in all of them, as a tree; over: the values of every key."""

    config: dict[str, Any]
    over: dict[str, list[Any]]
    settings: list[Setting]

    @classmethod
    def read(cls, folder: Path) -> "SettingsFile":
        """Raises ConfigError where it is damaged."""
        return read_as(cls, folder / MATRIX_FILE, cls.faults)

    def write(self, folder: Path) -> None:
        write_json_atomically(folder / MATRIX_FILE, asdict(self), own_checksum=True)

    def faults(self) -> Iterator[str]:
        """Mistakes in a file that was written by hand, which a report could not make sense of."""
        yield from config_faults(self.config)
        if not self.settings:
            yield "settings: there are none"
        for key in ("name", "path"):
            if len({getattr(setting, key) for setting in self.settings}) < len(self.settings):
                yield f"settings: two have the same {key}"
        for setting in self.settings:
            path = PurePath(setting.path)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                yield f"settings: {setting.path} is no folder inside that of the matrix"
            if setting.values.keys() != self.over.keys():
                yield f"settings: {setting.name} has not exactly one value for each key of over"


def settings_of(over: Mapping[str, Sequence[Any]]) -> list[Setting]:
    """All combinations of the values, the last key changing fastest, as `data=cifar10,alpha=0.1`."""
    points = product(*over.values())
    names = [point_name(dict(zip(over, short, strict=True))) for short in product(*map(short_key, over.values()))]
    return [
        Setting(name, dict(zip(over, values, strict=True)), f"settings/{name}")
        for name, values in zip(names, points, strict=True)
    ]


def short_key(values: Sequence[Any]) -> list[Any]:
    """Values for names: of paths the last parts, as many as tell them apart.

    `["parquet:/sets/a", "folder:b/x", "folder:c/x"]` -> `["sets-a", "folder:b-x", "folder:c-x"]`.
    """
    texts = [text_of(value).replace("/", "-") if isinstance(value, dict) else value for value in values]
    paths = [text.split("/") if isinstance(text, str) else [text] for text in texts]
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["-".join(path[-depth:]) if isinstance(path[0], str) else path[0] for path in paths]
        if len(set(map(text_of, names))) == len(names):
            break
    return names


def is_matrix(folder: Path) -> bool:
    """Whether the folder holds a study over settings."""
    return (folder / MATRIX_FILE).exists()
