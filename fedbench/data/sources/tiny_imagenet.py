"""Tiny-ImageNet in its own folder layout. The published validation part, which has labels, is the test part."""

from pathlib import Path

from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.images import Item
from fedbench.data.reading.listing import (
    SeenFiles,
    listed_content,
    nonempty_images,
    path_below,
    read_list,
    require_folders,
)
from fedbench.data.reading.published import EXAMPLES, Constants, Download, Extent, PublishedSet
from fedbench.errors import ConfigError

ADDRESS = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
PUBLISHED = {
    "tiny-imagenet": PublishedSet(
        Extent(100_000, (3, 64, 64), 200),
        ("wnids.txt", "words.txt", "train", "val"),
        below=("tiny-imagenet-200",),
        images=110_000,
        constants=Constants((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821), EXAMPLES),
        size="0.25 GB",
        is_needed=lambda name: not name.endswith("_boxes.txt") and "/test/" not in name,
        downloads=lambda: (Download((ADDRESS,), "90528d7ca1a48142e341f4ef8d21d0de"),),
    )
}


class Options(Section):
    size: int | None = Field(None, ge=1, description="resize every image to size x size pixels (published: 64)")


def read(name: str, folder: Path, options: Options) -> Content:
    """Classes in ascending order of their WordNet numbers, as folder readers number them. Raises ConfigError."""
    numbers = tuple(sorted(row.values[0] for row in read_list(folder / "wnids.txt", "\t")))
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"{folder / 'wnids.txt'}: a class is listed twice")
    words = {row.values[0]: row.values[-1].split(",")[0] for row in read_list(folder / "words.txt", "\t")}
    names = tuple(words.get(number, number) for number in numbers)
    parts = {"train": train_items(folder, numbers), "test": val_items(folder, numbers)}
    return listed_content(parts, names, options.size)


def train_items(folder: Path, numbers: tuple[str, ...]) -> list[Item]:
    require_folders(folder / "train", numbers)
    return [
        Item(file, label, str(file))
        for label, number in enumerate(numbers)
        for file in nonempty_images(folder / "train" / number / "images")
    ]


def val_items(folder: Path, numbers: tuple[str, ...]) -> list[Item]:
    """One image per line of the annotations: file, class, box. Raises ConfigError."""
    path, seen, items = folder / "val" / "val_annotations.txt", SeenFiles(), []
    labels = {number: label for label, number in enumerate(numbers)}
    for row in read_list(path, "\t"):
        if len(row.values) < 2 or row.values[1] not in labels:
            number = row.values[1] if len(row.values) > 1 else "none"
            raise ConfigError(f"{row.where}: class {number} is not in wnids.txt")
        file = seen.add(path_below(folder / "val" / "images", row.values[0], row.where), row.where)
        items.append(Item(file, labels[row.values[1]], f"{file} ({row.where})"))
    return items
