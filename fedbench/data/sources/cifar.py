"""CIFAR-10 and CIFAR-100: the Python pickles that torchvision reads, opened only with the published checksum."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.reading import published
from fedbench.data.reading.published import Download, Published, check_pickles
from fedbench.errors import ConfigError

KINDS = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}
BLOCK = 1000


class Options(Section):
    """No options."""


def kind_of(name: str) -> Any:
    from torchvision import datasets

    return getattr(datasets, KINDS[name])


def downloads_of(name: str) -> tuple[Download, ...]:
    kind = kind_of(name)
    return (Download(kind.filename, (kind.url,), kind.tgz_md5),)


def sums_of(name: str) -> dict[str, str]:
    kind = kind_of(name)
    return dict((*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])))


PUBLISHED = {
    "cifar10": Published(
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        below=("cifar-10-batches-py",),
        downloads=partial(downloads_of, "cifar10"),
        sums=partial(sums_of, "cifar10"),
        pickled=True,
    ),
    "cifar100": Published(
        ("train", "test", "meta"),
        below=("cifar-100-python",),
        downloads=partial(downloads_of, "cifar100"),
        sums=partial(sums_of, "cifar100"),
        pickled=True,
    ),
}


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    return published.source(config, options, progress, PUBLISHED[config.name], read)


def read(name: str, folder: Path, options: Options) -> Content:
    """CIFAR-100 with its 100 fine classes."""
    check_pickles(PUBLISHED[name], folder)
    kind = kind_of(name)
    here = type(kind.__name__, (kind,), {"base_folder": folder.name})
    parts = [here(folder.parent, train=train) for train in (True, False)]
    names = tuple(parts[0].classes)
    for part in parts:
        check_part(folder, part, len(names))
    return Content(*map(len, parts), chain.from_iterable(map(sliced, parts)), len(names), names)


def check_part(folder: Path, part: Any, classes: int) -> None:
    wrong = [label for label in part.targets if not 0 <= label < classes]
    if wrong or len(part.targets) != len(part.data):
        raise ConfigError(f"{folder}: {len(part.data)} images, {len(part.targets)} labels, {len(wrong)} out of range")


def sliced(part: Any) -> Iterator[Block]:
    labels = np.array(part.targets, np.int64)
    for start in range(0, len(labels), BLOCK):
        yield Block(part.data[start : start + BLOCK].transpose(0, 3, 1, 2), labels[start : start + BLOCK])
