"""CIFAR-10 and CIFAR-100: the Python pickles that torchvision reads, opened only with the published checksum."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.constants import CIFAR10, EXAMPLES, Constants
from fedbench.data.reading import published
from fedbench.data.reading.download import Download
from fedbench.data.reading.published import Extent, PublishedSet, check_pickles
from fedbench.errors import ConfigError

TORCHVISION_CIFAR = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}
IMAGES_PER_SLICE = 1000


class Options(Section):
    """No options."""


def pickle_kind(name: str) -> Any:
    from torchvision import datasets

    return getattr(datasets, TORCHVISION_CIFAR[name])


def cifar_downloads(name: str) -> tuple[Download, ...]:
    kind = pickle_kind(name)
    return (Download(kind.filename, (kind.url,), kind.tgz_md5),)


def cifar_sums(name: str) -> dict[str, str]:
    kind = pickle_kind(name)
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


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    return published.source(config, options, progress, PUBLISHED[config.name], read)


def read(name: str, folder: Path, options: Options) -> Content:
    """CIFAR-100 has its 100 fine classes."""
    check_pickles(PUBLISHED[name], folder)
    kind = pickle_kind(name)
    here = type(kind.__name__, (kind,), {"base_folder": folder.name})
    parts = [here(folder.parent, train=train) for train in (True, False)]
    names = tuple(parts[0].classes)
    for part in parts:
        check_part(folder, part, len(names))
    train, test = map(len, parts)
    return Content(train, test, chain.from_iterable(map(unpickled_slices, parts)), len(names), names)


def check_part(folder: Path, part: Any, classes: int) -> None:
    wrong = [label for label in part.targets if not 0 <= label < classes]
    if wrong or len(part.targets) != len(part.data):
        raise ConfigError(f"{folder}: {len(part.data)} images, {len(part.targets)} labels, {len(wrong)} out of range")


def unpickled_slices(part: Any) -> Iterator[Block]:
    labels = np.array(part.targets, np.int64)
    for start in range(0, len(labels), IMAGES_PER_SLICE):
        yield Block(
            part.data[start : start + IMAGES_PER_SLICE].transpose(0, 3, 1, 2), labels[start : start + IMAGES_PER_SLICE]
        )
