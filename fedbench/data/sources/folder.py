"""Folders of image files: train/CLASS/... and test/CLASS/..., or CLASS/... alone."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, Source
from fedbench.data.dataset import Progress
from fedbench.data.sources.images import Item, blocks, channels_of, decoder, is_test_row
from fedbench.errors import ConfigError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
TEST = ("test", "val", "valid", "validation")
"""Names of the folder with the test part; the first that exists is taken."""

Listing = dict[str, list[Path]]
"""Image files by class, both in ascending order."""


class Options(Section):
    """Keys `data.*` of a folder source."""

    size: int | None = Field(None, ge=1, description="resize every image to size x size pixels")


def source(config: DataConfig, options: Options, progress: Progress | None) -> Source:
    path = Path(config.root or ".", Path(config.name.partition(":")[2]).expanduser()).resolve()
    if not path.is_dir():
        raise ConfigError(f"data folder:{path}: no such folder")
    train, test = find_parts(path)
    files = tuple(file for part in (train, test) for own in part.values() for file in own)
    return Source(f"folder:{path}", partial(read, train, test, options), files, options.model_dump())


def find_parts(path: Path) -> tuple[Listing, Listing]:
    """Training and test images by class. Without a test folder every fifth image of each class is a test image."""
    inside = {entry.name for entry in path.iterdir() if entry.is_dir()}
    held_out = next((name for name in TEST if name in inside), None)
    if "train" in inside and held_out:
        return checked_parts(listing(path / "train"), listing(path / held_out), path / held_out)
    classes = listing(path / "train" if inside == {"train"} else path)
    return tuple(  # type: ignore[return-value]
        {name: [f for i, f in enumerate(files) if is_test_row(i) == test] for name, files in classes.items()}
        for test in (False, True)
    )


def checked_parts(train: Listing, test: Listing, place: Path) -> tuple[Listing, Listing]:
    unknown = sorted(set(test) - set(train))
    if unknown:
        raise ConfigError(f"{place / unknown[0]}: no folder of this class in the training part")
    return train, test


def listing(path: Path) -> Listing:
    """Images below each class folder; hidden files and files of other kinds are left out. Raises ConfigError."""
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    found = {folder.name: sorted(images_below(folder), key=Path.as_posix) for folder in classes}
    if not found:
        raise ConfigError(f"{path}: no class folders in it")
    for name, files in found.items():
        if not files:
            raise ConfigError(f"{path / name}: no images in it ({', '.join(sorted(SUFFIXES))})")
    return found


def images_below(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.suffix.lower() in SUFFIXES and not name.startswith("."):
                yield path


def read(train: Listing, test: Listing, options: Options) -> Content:
    names = tuple(train)
    items = [
        Item(file, names.index(name), str(file))
        for part in (train, test)
        for name, files in part.items()
        for file in files
    ]
    count = sum(map(len, train.values()))
    decode = decoder(channels_of(items), options.size)
    return Content(count, len(items) - count, blocks(items, decode), len(names), names)
