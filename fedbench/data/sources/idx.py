"""MNIST, Fashion-MNIST and EMNIST (byclass, 62 classes): the IDX files that torchvision reads, compressed or not."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.constants import EXAMPLES, Constants
from fedbench.data.reading import published
from fedbench.data.reading.download import Download
from fedbench.data.reading.published import Extent, PublishedSet, changed_warning, find_entry
from fedbench.errors import ConfigError, first_line

TORCHVISION_IDX = {"mnist": "MNIST", "fmnist": "FashionMNIST", "emnist": "EMNIST"}
IDX_DOWNLOAD_SIZES = {"mnist": "12 MB", "fmnist": "31 MB", "emnist": "0.56 GB"}
IDX_CONSTANTS = {
    "mnist": Constants((0.1307,), (0.3081,), EXAMPLES),
    "fmnist": Constants((0.2860,), (0.3530,), EXAMPLES),
}
IMAGES_READ_AT_ONCE = 1000
LARGEST_SIDE = 4096


class Options(Section):
    """No options."""


def idx_file_names(prefix: str, test: str) -> tuple[str, ...]:
    """Images and labels of the training part, then of the test part."""
    parts = [f"{prefix}{part}" for part in ("train", test)]
    return tuple(f"{part}-{kind}-ubyte" for part in parts for kind in ("images-idx3", "labels-idx1"))


def torchvision_class(name: str) -> Any:
    from torchvision import datasets

    return getattr(datasets, TORCHVISION_IDX[name])


def idx_downloads(name: str) -> tuple[Download, ...]:
    kind = torchvision_class(name)
    if name == "emnist":
        return (Download("gzip.zip", (kind.url,), kind.md5),)
    return tuple(Download(file, tuple(mirror + file for mirror in kind.mirrors), md5) for file, md5 in kind.resources)


def idx_sums(name: str) -> dict[str, str]:
    return dict(torchvision_class(name).resources)


MNIST_FILES = idx_file_names("", "t10k")
PUBLISHED = {
    name: PublishedSet(
        Extent(60_000, (1, 28, 28), 10),
        MNIST_FILES,
        below=(f"{TORCHVISION_IDX[name]}/raw", "raw"),
        downloads=partial(idx_downloads, name),
        sums=partial(idx_sums, name),
        size=IDX_DOWNLOAD_SIZES[name],
        constants=IDX_CONSTANTS[name],
    )
    for name in ("mnist", "fmnist")
} | {
    "emnist": PublishedSet(
        Extent(697_932, (1, 28, 28), 62),
        idx_file_names("emnist-byclass-", "test"),
        below=("EMNIST/raw", "raw", "gzip"),
        is_needed=lambda name: "emnist-byclass-" in name,
        downloads=partial(idx_downloads, "emnist"),
        size=IDX_DOWNLOAD_SIZES["emnist"],
        constants=Constants((0.1736,), (0.3317,), f"{EXAMPLES} (byclass)"),
    )
}


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    return published.source(config, options, progress, PUBLISHED[config.name], read)


def read(name: str, folder: Path, options: Options) -> Content:
    """Warns about every file whose checksum is not the published one. EMNIST's images are rotated upright."""
    files = [found for file in PUBLISHED[name].names if (found := find_entry(folder, file))]
    names = class_names(name)
    labels = [idx_labels(files[i], len(names)) for i in (1, 3)]
    shapes = [image_shape(files[i], files[i + 1], len(own)) for i, own in zip((0, 2), labels, strict=True)]
    if shapes[0][1:] != shapes[1][1:]:
        raise ConfigError(f"{files[2]}: images of a different size than in {files[0].name}")
    parts = (image_blocks(files[i], own, upright=name == "emnist") for i, own in zip((0, 2), labels, strict=True))
    warnings = changed_warning(PUBLISHED[name], folder)
    train, test = map(len, labels)
    return Content(train, test, chain.from_iterable(parts), len(names), names, warnings=warnings)


def class_names(name: str) -> tuple[str, ...]:
    kind = torchvision_class(name)
    if name == "emnist":
        return tuple(kind.classes_split_dict["byclass"])
    return tuple(text.split(" - ")[0] for text in kind.classes)


@contextmanager
def open_idx(path: Path, dimensions: int) -> Iterator[tuple[BinaryIO, tuple[int, ...]]]:
    """The file after its header, and the announced shape. Raises ConfigError, also for later reading errors."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(4 + 4 * dimensions)
            if len(start) < 4 + 4 * dimensions or start[:4] != bytes((0, 0, 8, dimensions)):
                raise ConfigError(f"{path}: not an IDX file of {dimensions}-dimensional bytes")
            shape = tuple(int(n) for n in np.frombuffer(start, ">u4", dimensions, offset=4))
            if not prod(shape) or max(shape[1:], default=1) > LARGEST_SIDE:
                raise ConfigError(f"{path}: announces {' x '.join(map(str, shape))} values")
            yield file, shape  # type: ignore[misc]
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: damaged or incomplete ({first_line(error)})") from error


def read_header(path: Path) -> tuple[int, ...]:
    """The announced shape of an image file."""
    with open_idx(path, 3) as (_, shape):
        return shape


def check_end(path: Path, file: BinaryIO, announced: int) -> None:
    """Raises ConfigError for trailing data; reading to the end also makes gzip verify its checksum."""
    if file.read(1):
        raise ConfigError(f"{path}: {announced} rows announced, but there are more")


def idx_labels(path: Path, classes: int) -> np.ndarray:
    """int64 [n]. Raises ConfigError."""
    with open_idx(path, 1) as (file, (count,)):
        labels = np.frombuffer(file.read(min(count, 2**31)), np.uint8).astype(np.int64)
        check_label_count(path, count, len(labels))
        check_end(path, file, count)
    wrong = np.flatnonzero(labels >= classes)
    if len(wrong):
        where = f"{path}, row {wrong[0]}"
        raise ConfigError(f"{where}: label {labels[wrong[0]]} is outside the class range; 0 to {classes - 1}")
    return labels


def check_label_count(path: Path, announced: int, there: float) -> None:
    if announced != there:
        raise ConfigError(f"{path}: {announced} rows announced, but there are {there:g}")


def image_shape(image_file: Path, label_file: Path, labels: int) -> tuple[int, ...]:
    """The header's shape, before anything is decoded."""
    shape = read_header(image_file)
    if shape[0] != labels:
        raise ConfigError(f"{label_file}: {labels} labels, but {shape[0]} images in {image_file.name}")
    return shape


def image_blocks(path: Path, labels: np.ndarray, upright: bool) -> Iterator[Block]:
    """Images uint8 [b, 1, H, W], read as a stream."""
    with open_idx(path, 3) as (file, (count, height, width)):
        for start in range(0, count, IMAGES_READ_AT_ONCE):
            size = min(IMAGES_READ_AT_ONCE, count - start) * height * width
            data = file.read(size)
            if len(data) < size:
                check_label_count(path, count, start + len(data) / (height * width))
            images = np.frombuffer(data, np.uint8).reshape(-1, 1, height, width)
            yield Block(images.swapaxes(2, 3) if upright else images, labels[start : start + IMAGES_READ_AT_ONCE])
        check_end(path, file, count)
