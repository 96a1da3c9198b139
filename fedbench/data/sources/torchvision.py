"""Sets that torchvision knows, read from their published files: CIFAR-10, CIFAR-100, MNIST, Fashion-MNIST."""

import gzip
import hashlib
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data import cache
from fedbench.data.cache import Block, Content, Source
from fedbench.data.dataset import Progress
from fedbench.errors import ConfigError

PATIENCE = 20.0
"""Seconds without an answer after which a download is given up."""


@dataclass(frozen=True)
class Published:
    """A published set. files: what must be there, in `folder` below the root or in the root itself.

    mean, std: per channel, of the training part's pixels in [0, 1].
    """

    kind: str
    folder: str
    archive: str
    files: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def pickled(self) -> bool:
        return self.kind.startswith("CIFAR")


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
# Mean and deviation: over all pixels of the published training part, as PyTorch's examples (MNIST) and most federated
# code bases give them. Some give CIFAR-10 deviations of 0.20: those are means over images of each image's deviation.
PUBLISHED = {
    "cifar10": Published(
        "CIFAR10",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    ),
    "cifar100": Published(
        "CIFAR100",
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        ("train", "test", "meta"),
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
    ),
    "mnist": Published("MNIST", "MNIST/raw", "", IDX, (0.1307,), (0.3081,)),
    "fmnist": Published("FashionMNIST", "FashionMNIST/raw", "", IDX, (0.2860,), (0.3530,)),
}


class Options(Section):
    """No options."""


def source(config: DataConfig, options: Options, progress: Progress | None) -> Source:
    published = PUBLISHED[config.name]
    found = locate(published, config.root) if config.root else stored(config.name, progress)
    if found is None:
        raise ConfigError(
            f"data.root = {str(config.root)!r}: {expected(published)} not found there; give the folder that holds them"
        )
    return Source(config.name, partial(read, config.name, found), found)


def stored(name: str, progress: Progress | None) -> tuple[Path, ...]:
    """The files in the cache, downloaded now if need be. Raises ConfigError where that is impossible."""
    published, folder = PUBLISHED[name], store(name)
    if not locate(published, folder):
        with cache.locked(folder.with_name(f"{name}.lock")):
            if not locate(published, folder):
                download(name, folder, progress)
    found = locate(published, folder)
    if found is None:
        raise ConfigError(f"{folder}: {expected(published)} not found there after the download")
    return found


def store(name: str) -> Path:
    """Where published files lie in the cache."""
    return cache.root() / "files" / name


def expected(published: Published) -> str:
    return ", ".join(file + ("" if published.pickled else ".gz") for file in published.files)


def locate(published: Published, root: Path) -> tuple[Path, ...] | None:
    """The files of a set below a root, as torchvision lays them out or flat; packed ones first. None if incomplete."""
    root = root.expanduser().absolute()
    for folder in (root / published.folder, root, root / "raw"):
        found = [
            next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None) for name in published.files
        ]
        if all(found):
            return tuple(path for path in found if path)
    return None


def download(name: str, folder: Path, progress: Progress | None) -> None:
    """Fetch the published files to a folder, whole or not at all. Raises ConfigError."""
    published = PUBLISHED[name]
    if progress:
        progress(f"downloading {name}", 0, 1)
    try:
        with cache.replacing(folder) as part:
            with patience(PATIENCE):
                torchvision_class(published)(part, train=True, download=True)
            if published.archive:
                (part / published.archive).unlink()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"data {name}: not here, and the download failed ({first_line(error)}); put {expected(published)} "
            f"into {folder / published.folder}, or import them from elsewhere: fedbench data {name} --from PATH"
        ) from error


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(":")


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Network calls of this block that get no answer for so long fail; torchvision itself would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def torchvision_class(published: Published) -> Any:
    from torchvision import datasets

    return getattr(datasets, published.kind)


def read(name: str, files: tuple[Path, ...]) -> Content:
    published = PUBLISHED[name]
    parts, names, notes = (read_pickled if published.pickled else read_idx)(published, files)
    train, test = (len(labels) for _, labels in parts)
    blocks = (block for part in parts for block in sliced(*part))
    return Content(train, test, blocks, len(names), names, mean=published.mean, std=published.std, notes=notes)


Parts = list[tuple[np.ndarray, np.ndarray]]
"""Images uint8 [n, C, H, W] and labels int64 [n] of the training and of the test part."""


def sliced(images: np.ndarray, labels: np.ndarray, size: int = 1000) -> Iterator[Block]:
    for start in range(0, len(labels), size):
        yield Block(images[start : start + size], labels[start : start + size])


def md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


# -- CIFAR: Python pickles ---------------------------------------------------------------------------------------------


def read_pickled(published: Published, files: tuple[Path, ...]) -> tuple[Parts, tuple[str, ...], tuple[str, ...]]:
    """Images, class names and notes. Raises ConfigError unless every checksum is the published one."""
    check_pickles(published, files)
    kind, folder = torchvision_class(published), files[0].parent
    here = type(kind.__name__, (kind,), {"base_folder": folder.name})
    sets = [here(folder.parent, train=train) for train in (True, False)]
    parts = [(part.data.transpose(0, 3, 1, 2), np.array(part.targets, np.int64)) for part in sets]
    return parts, tuple(sets[0].classes), ()


def check_pickles(published: Published, files: tuple[Path, ...]) -> None:
    kind = torchvision_class(published)
    sums = dict((*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])))
    for path in files:
        if md5(path) != sums[path.name]:
            raise ConfigError(
                f"{path}: not the published file (MD5 differs); it is a Python pickle, which can run code, and only "
                "read with the published checksum"
            )


# -- MNIST: IDX files --------------------------------------------------------------------------------------------------


def read_idx(published: Published, files: tuple[Path, ...]) -> tuple[Parts, tuple[str, ...], tuple[str, ...]]:
    """Images, class names and notes: a note for every file whose checksum is not the published one."""
    kind = torchvision_class(published)
    names, sums = tuple(name.split(" - ")[0] for name in kind.classes), dict(kind.resources)
    parts = [idx_part(files[i], files[i + 1], len(names)) for i in (0, 2)]
    others = [path.name for path in files if path.name in sums and md5(path) != sums[path.name]]
    notes = (f"not the published files (MD5 differs): {', '.join(others)}; a subset, or changed",) if others else ()
    if parts[0][0].shape[1:] != parts[1][0].shape[1:]:
        raise ConfigError(f"{files[2]}: images of another size than in {files[0].name}")
    return parts, names, notes


def idx_part(image_file: Path, label_file: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = idx_array(image_file, 3), idx_array(label_file, 1).astype(np.int64)
    if len(images) != len(labels):
        raise ConfigError(f"{label_file}: {len(labels)} labels, and {len(images)} images in {image_file.name}")
    wrong = np.flatnonzero(labels >= classes)
    if len(wrong):
        where = f"{label_file}, row {wrong[0]}"
        raise ConfigError(f"{where}: label {labels[wrong[0]]} is outside the class range; 0 to {classes - 1}")
    return images[:, None], labels


def idx_array(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array in an IDX file, packed or not. Raises ConfigError."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: damaged or not whole ({first_line(error)})") from error
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes((0, 0, 8, dimensions)):
        raise ConfigError(f"{path}: not an IDX file of {dimensions}-dimensional bytes")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dimensions, offset=4))
    if prod(shape) != len(data) - header or not prod(shape):
        each = max(1, prod(shape[1:]))
        raise ConfigError(f"{path}: {shape[0]} rows announced, {(len(data) - header) / each:g} are there")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
