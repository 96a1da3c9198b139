"""CIFAR-10 and CIFAR-100: the Python pickles that torchvision reads, opened only with the published checksum."""

from functools import partial
from pathlib import Path

import numpy as np

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.arrays import array_content, torchvision_dataset
from fedbench.data.reading.published import EXAMPLES, Constants, Download, Extent, PublishedSet

Options = Section
CIFAR10 = Constants((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), EXAMPLES)


def cifar_downloads(name: str) -> tuple[Download, ...]:
    kind = torchvision_dataset(name.upper())
    return (Download((kind.url,), kind.tgz_md5),)


def cifar_sums(name: str) -> dict[str, str]:
    kind = torchvision_dataset(name.upper())
    return dict((*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])))


PUBLISHED = {
    "cifar10": PublishedSet(
        Extent(50_000, (3, 32, 32), 10),
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        below=("cifar-10-batches-py",),
        downloads=partial(cifar_downloads, "cifar10"),
        sums=partial(cifar_sums, "cifar10"),
        pickled=True,
        size="170 MB",
        constants=CIFAR10,
    ),
    "cifar100": PublishedSet(
        Extent(50_000, (3, 32, 32), 100),
        ("train", "test", "meta"),
        below=("cifar-100-python",),
        downloads=partial(cifar_downloads, "cifar100"),
        sums=partial(cifar_sums, "cifar100"),
        pickled=True,
        size="169 MB",
        constants=Constants((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), EXAMPLES),
    ),
}


def read(name: str, folder: Path, options: Options) -> Content:
    """CIFAR-100 has its 100 fine classes. Every file has the published checksum, so nothing else is checked."""
    kind = torchvision_dataset(name.upper())
    here = type(kind.__name__, (kind,), {"base_folder": folder.name})
    train, test = (here(folder.parent, train=train) for train in (True, False))
    parts = [(part.data, np.array(part.targets, np.int64)) for part in (train, test)]
    return array_content(parts, tuple(train.classes), f"{folder}: images of different sizes")
