"""SVHN: the MATLAB files that torchvision reads, without the part `extra`."""

from pathlib import Path

import numpy as np

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.arrays import array_content, checked_images, checked_labels, refuse_damage
from fedbench.data.reading.published import EXAMPLES, Constants, Download, Extent, PublishedSet
from fedbench.errors import ConfigError

Options = Section
FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


def svhn_downloads() -> tuple[Download, ...]:
    from torchvision.datasets import SVHN

    splits = (SVHN.split_list[part] for part in FILES)
    return tuple(Download((address,), md5) for address, _, md5 in splits)


PUBLISHED = {
    "svhn": PublishedSet(
        Extent(73_257, (3, 32, 32), 10),
        tuple(FILES.values()),
        below=("svhn", "SVHN"),
        size="0.25 GB",
        constants=Constants((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), EXAMPLES),
        downloads=svhn_downloads,
    )
}


def read(name: str, folder: Path, options: Options) -> Content:
    parts = [read_part(folder / file) for file in FILES.values()]
    return array_content(parts, tuple("0123456789"), f"{folder}: images of another size in the test part")


def read_part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, H, W, 3] and labels int64 [n]; the file stores the digit 0 as 10. Raises ConfigError."""
    from scipy.io import loadmat

    with refuse_damage(path, "incomplete or damaged MATLAB file"):
        content = loadmat(path, variable_names=("X", "y"))
    images, labels = content.get("X"), content.get("y")
    if images is None or labels is None or getattr(images, "ndim", 0) != 4:
        raise ConfigError(f"{path}: expected the arrays X (height x width x 3 x count) and y")
    images = checked_images(str(path), images.transpose(3, 0, 1, 2))
    return images, checked_labels(str(path), labels, len(images), classes=10, first=1) % 10
