"""SVHN: the MATLAB files that torchvision reads, without the part `extra`."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.constants import EXAMPLES, Constants
from fedbench.data.reading import published
from fedbench.data.reading.arrays import array_blocks, checked_images, checked_labels, unreadable_error
from fedbench.data.reading.download import Download
from fedbench.data.reading.published import Extent, PublishedSet, changed_warning
from fedbench.errors import ConfigError

SVHN_PARTS = ("train", "test")


class Options(Section):
    """No options."""


def torchvision_lists() -> dict[str, tuple[str, str, str]]:
    """(address, file name, MD5) by part."""
    from torchvision.datasets import SVHN

    return {part: tuple(SVHN.split_list[part]) for part in SVHN_PARTS}


PUBLISHED = {
    "svhn": PublishedSet(
        Extent(73_257, (3, 32, 32), 10),
        tuple(f"{part}_32x32.mat" for part in SVHN_PARTS),
        below=("svhn", "SVHN"),
        size="0.25 GB",
        constants=Constants((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), EXAMPLES),
        downloads=lambda: tuple(Download(name, (address,), md5) for address, name, md5 in torchvision_lists().values()),
        sums=lambda: {name: md5 for _, name, md5 in torchvision_lists().values()},
    )
}


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    return published.source(config, options, progress, PUBLISHED["svhn"], read)


def read(name: str, folder: Path, options: Options) -> Content:
    """Warns about files whose checksum is not the published one."""
    (train, train_labels), (test, test_labels) = (read_part(folder / file) for file in PUBLISHED["svhn"].names)
    if train.shape[1:] != test.shape[1:]:
        raise ConfigError(f"{folder}: images of another size in the test part")
    blocks = chain(array_blocks(train, train_labels), array_blocks(test, test_labels))
    warnings = changed_warning(PUBLISHED["svhn"], folder)
    return Content(len(train), len(test), blocks, 10, tuple("0123456789"), warnings=warnings)


def read_part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, H, W, 3] and labels int64 [n]; the file stores the digit 0 as 10. Raises ConfigError."""
    found = read_variables(path)
    images, labels = found.get("X"), found.get("y")
    if images is None or labels is None or getattr(images, "ndim", 0) != 4:
        raise ConfigError(f"{path}: expected the arrays X (height x width x 3 x count) and y")
    images = checked_images(str(path), images.transpose(3, 0, 1, 2))
    return images, checked_labels(str(path), labels, len(images), classes=10, first=1) % 10


def read_variables(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        found: dict[str, Any] = loadmat(path, variable_names=("X", "y"))
    except Exception as error:
        raise unreadable_error(path, "MATLAB", error) from error
    return found
