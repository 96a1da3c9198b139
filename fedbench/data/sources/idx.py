"""MNIST, Fashion-MNIST and EMNIST (byclass, 62 classes): the IDX files that torchvision reads, compressed or not."""

import gzip
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.arrays import array_content, checked_labels, refuse_damage, torchvision_dataset
from fedbench.data.reading.published import EXAMPLES, Constants, Download, Extent, PublishedSet, entries
from fedbench.errors import ConfigError

Options = Section
LARGEST_SIDE = 4096
TORCHVISION = {"mnist": "MNIST", "fmnist": "FashionMNIST", "emnist": "EMNIST"}
"""Their names in torchvision."""


def idx_downloads(name: str) -> tuple[Download, ...]:
    kind = torchvision_dataset(TORCHVISION[name])
    if name == "emnist":
        return (Download((kind.url,), kind.md5),)
    return tuple(Download(tuple(mirror + file for mirror in kind.mirrors), md5) for file, md5 in kind.resources)


def idx_file_names(prefix: str, test: str) -> tuple[str, ...]:
    """Images and labels of the training part, then of the test part."""
    parts = [f"{prefix}{part}" for part in ("train", test)]
    return tuple(f"{part}-{kind}-ubyte" for part in parts for kind in ("images-idx3", "labels-idx1"))


PUBLISHED = {
    "mnist": PublishedSet(
        Extent(60_000, (1, 28, 28), 10),
        idx_file_names("", "t10k"),
        below=("MNIST/raw", "raw"),
        downloads=partial(idx_downloads, "mnist"),
        size="12 MB",
        constants=Constants((0.1307,), (0.3081,), EXAMPLES),
    ),
    "fmnist": PublishedSet(
        Extent(60_000, (1, 28, 28), 10),
        idx_file_names("", "t10k"),
        below=("FashionMNIST/raw", "raw"),
        downloads=partial(idx_downloads, "fmnist"),
        size="31 MB",
        constants=Constants((0.2860,), (0.3530,), EXAMPLES),
    ),
    "emnist": PublishedSet(
        Extent(697_932, (1, 28, 28), 62),
        idx_file_names("emnist-byclass-", "test"),
        below=("EMNIST/raw", "raw", "gzip"),
        is_needed=lambda name: "emnist-byclass-" in name,
        downloads=partial(idx_downloads, "emnist"),
        size="0.56 GB",
        constants=Constants((0.1736,), (0.3317,), f"{EXAMPLES} (byclass)"),
    ),
}


def read(name: str, folder: Path, options: Options) -> Content:
    """EMNIST's images are rotated upright. Raises ConfigError."""
    kind = torchvision_dataset(TORCHVISION[name])
    names = kind.classes_split_dict["byclass"] if name == "emnist" else [text.split(" - ")[0] for text in kind.classes]
    train_images, train_labels, test_images, test_labels = entries(PUBLISHED[name], folder)
    parts = []
    for image_file, label_file in ((train_images, train_labels), (test_images, test_labels)):
        images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
        if len(labels) != len(images):
            raise ConfigError(f"{label_file}: {len(labels)} labels, but {len(images)} images in {image_file.name}")
        upright = images.swapaxes(1, 2) if name == "emnist" else images
        parts.append((upright, checked_labels(str(label_file), labels, len(labels), len(names))))
    mismatch = f"{test_images}: images of a different size than in {train_images.name}"
    return array_content(parts, tuple(names), mismatch)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of a file, uint8. Raises ConfigError."""
    with refuse_damage(path, "damaged or incomplete"):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise ConfigError(f"{path}: not an IDX file of {dimensions}-dimensional bytes")
    shape = tuple(np.frombuffer(content, ">u4", dimensions, offset=4).tolist())
    if not prod(shape) or max(shape[1:], default=1) > LARGEST_SIDE:
        raise ConfigError(f"{path}: announces {' x '.join(map(str, shape))} values")
    rows = (len(content) - start) / prod(shape[1:])
    if rows != shape[0]:
        there = "more" if rows > shape[0] else f"{rows:g}"
        raise ConfigError(f"{path}: {shape[0]} rows announced, but there are {there}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
