"""mini-ImageNet: train.csv, val.csv and test.csv (columns filename, label) and a folder of images.

The published parts are 64, 16 and 20 disjoint classes for few-shot learning. All 100 classes are joined, and every
sixth image of a class, in list order, is a test image: 500 and 100 of each.
"""

import re
from pathlib import Path

from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.images import Item
from fedbench.data.reading.listing import SeenFiles, listed_content, path_below, read_columns
from fedbench.data.reading.published import Extent, PublishedSet
from fedbench.errors import ConfigError

LISTS = ("train.csv", "val.csv", "test.csv")
EVERY = 6
NUMBER = re.compile(r"n\d{8}")
PUBLISHED = {
    "mini-imagenet": PublishedSet(
        Extent(50_000, (3, 84, 84), 100),
        (*LISTS, "images"),
        below=("mini-imagenet", "miniImageNet"),
        images=60_000,
        size="60,000 images, about 6.5 GB in ImageNet's own size",
        origin="get the three lists of Ravi and Larochelle (2017) and the 60,000 images, which are ImageNet's",
    )
}


class Options(Section):
    size: int = Field(84, ge=1, description="side length to which images are resized, in pixels")


def read(name: str, folder: Path, options: Options) -> Content:
    """Classes in ascending order of their WordNet numbers. Raises ConfigError."""
    seen, listed = SeenFiles(), dict[str, list[tuple[Path, str]]]()
    for part in LISTS:
        for file, number, row in read_columns(folder / part, "filename", "label"):
            if not file or not number:
                raise ConfigError(f"{row.where}: expected a file name and a label")
            if not NUMBER.fullmatch(number):
                raise ConfigError(f"{row.where}: label {number} is not a WordNet number like n01532829")
            if not file.startswith(number):
                raise ConfigError(f"{row.where}: {file} does not belong to class {number} by its name")
            path = seen.add(path_below(folder / "images", file, row.where), row.where)
            listed.setdefault(number, []).append((path, f"{path} ({row.where})"))
    names = tuple(sorted(listed))
    parts: dict[str, list[Item]] = {"train": [], "test": []}
    for label, number in enumerate(names):
        for index, (path, where) in enumerate(listed[number]):
            parts["test" if index % EVERY == EVERY - 1 else "train"].append(Item(path, label, where))
    warnings = ("every sixth image of each class is a test image: the published parts are disjoint in classes",)
    return listed_content(parts, names, options.size, warnings=warnings)
