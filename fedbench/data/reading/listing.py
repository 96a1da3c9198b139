"""Shared code of image file readers: image files by class, lists of files, and sets made of them."""

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

from fedbench.config import DataConfig
from fedbench.data.cache import Content
from fedbench.data.reading.images import Item, image_content
from fedbench.errors import ConfigError, first_line

MACOSX = "__MACOSX"
"""A folder that macOS adds to archives, with a file of attributes for each file."""
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}


def path_in_name(config: DataConfig) -> Path:
    """The path in a name such as `folder:PATH`, relative to `data.root` if that is set. Raises ConfigError."""
    path = Path(config.root or ".", Path(config.name.partition(":")[2]).expanduser())
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python 3.11 raises both for links that lead to themselves
        raise ConfigError(f"data {config.name}: {first_line(error)}; give the path of the files themselves") from None


class ListedImage(NamedTuple):
    """A line of a list of files: its values and its place ('FILE, row 3', counted from 1)."""

    values: list[str]
    where: str


def subfolders(path: Path) -> list[Path]:
    """Ascending; hidden ones are omitted. Raises ConfigError."""
    return _entries(path, lambda entry: entry.is_dir() and is_shown(entry.name))


def is_shown(name: str) -> bool:
    return not name.startswith(".") and name != MACOSX


def folders_by_name(path: Path) -> dict[str, Path]:
    """The subfolders, by names in the composed form of Unicode, of which systems write two. Raises ConfigError."""
    folders: dict[str, Path] = {}
    for folder in subfolders(path):
        name = normalize("NFC", folder.name)
        if name in folders:
            raise ConfigError(f"{path}: two folders are called {name}, in two forms of Unicode; join them")
        folders[name] = folder
    return folders


def images_in(folder: Path) -> list[Path]:
    """Image files directly in a folder, ascending; other and hidden files are omitted. Raises ConfigError."""
    return _entries(folder, lambda entry: is_image(entry.name) and entry.is_file())


def _entries(folder: Path, is_wanted: "Callable[[os.DirEntry[str]], bool]") -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if is_wanted(entry))
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from error
    return [folder / name for name in names]


def is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def nonempty_images(folder: Path) -> list[Path]:
    """Like `images_in`, but at least one. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    return images_in(folder) or refuse_empty(folder)


def refuse_empty(folder: Path) -> list[Path]:
    raise ConfigError(f"{folder}: no images in it ({', '.join(sorted(SUFFIXES))})")


def require_folders(path: Path, names: tuple[str, ...], what: str = "class") -> None:
    """Raises ConfigError if folders are missing."""
    folders = [folder.name for folder in subfolders(path)]
    if absent := sorted({*names} - {*folders}):
        raise ConfigError(f"{path}: no folder for {what} {absent[0]}; it has {', '.join(folders) or 'none'}")


def read_list(path: Path, separator: str) -> Iterator[ListedImage]:
    """The non-empty lines of a list of files. Raises ConfigError if it is not text."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
        table = list(csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        text = "not text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({text})") from error
    rows = [
        ListedImage([v.strip() for v in values], f"{path}, row {n}") for n, values in enumerate(table, 1) if any(values)
    ]
    if not rows:
        raise ConfigError(f"{path}: empty file")
    yield from rows


def read_columns(path: Path, first: str, second: str) -> Iterator[tuple[str, str, ListedImage]]:
    """The values of two columns in the lines below a header, others are ignored. Raises ConfigError."""
    header, *rows = read_list(path, ",")
    if not {first, second} <= {*header.values}:
        raise ConfigError(f"{header.where}: expected columns {first} and {second}, not {', '.join(header.values)}")
    for row in rows:
        if len(row.values) != len(header.values):
            raise ConfigError(f"{row.where}: {len(row.values)} values, expected {len(header.values)}")
        cells = dict(zip(header.values, row.values, strict=True))
        yield cells[first], cells[second], row


class SeenFiles:
    """The files listed so far, to detect duplicates."""

    def __init__(self) -> None:
        self.rows: dict[Path, str] = {}

    def add(self, path: Path, where: str) -> Path:
        """Returns the path. Raises ConfigError if the file does not exist or was listed before."""
        if path in self.rows:
            raise ConfigError(f"{where}: {path.name} is listed twice, first in {self.rows[path]}")
        if not os.path.isfile(path):
            raise ConfigError(f"{where}: {path} is missing")
        self.rows[path] = where
        return path


def path_below(folder: Path, name: str, where: str) -> Path:
    """A listed path below a folder. Raises ConfigError for a path outside."""
    if not name or name.startswith(("/", "\\")) or ".." in Path(name).parts or "\0" in name:
        raise ConfigError(f"{where}: {name!r} is not a path inside {folder}")
    return folder / name


def listed_content(
    parts: Mapping[str, Sequence[Item]], names: tuple[str, ...], size: int | None, channels: int | None = 3, **more: Any
) -> Content:
    """A set of image files. parts: the images of train, and perhaps val and test; names: of the classes.

    size, channels, more: as in `image_content`.
    """
    items = [item for part in ("train", "val", "test") for item in parts.get(part, ())]
    sizes = {part: len(images) for part, images in parts.items()}
    return image_content(sizes, lambda: items, size, channels, classes=len(names), class_names=names, **more)
