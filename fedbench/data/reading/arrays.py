"""Shared by readers of published files: a part as one uint8 array and one array of labels, and damaged files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.cache import Block, Content
from fedbench.data.reading.images import library_reason
from fedbench.errors import ConfigError

IMAGES_PER_BLOCK = 1000


def checked_images(where: str, images: np.ndarray) -> np.ndarray:
    """uint8 [n, H, W] or [n, H, W, 3]. Raises ConfigError."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = getattr(images, "dtype", type(images).__name__)
        raise ConfigError(f"{where}: images hold {kind}; bytes (uint8) are expected")
    if images.ndim not in (3, 4) or 0 in images.shape or (images.ndim == 4 and images.shape[3] != 3):
        shape = " x ".join(map(str, images.shape))
        raise ConfigError(f"{where}: images of shape {shape}; count x height x width, or those x 3, is expected")
    return images


def checked_labels(where: str, labels: np.ndarray, count: int, classes: int, first: int = 0) -> np.ndarray:
    """int64 [n] from 0. first: the lowest label in the file. Raises ConfigError with the row."""
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu":
        kind = getattr(labels, "dtype", type(labels).__name__)
        raise ConfigError(f"{where}: labels hold {kind}; labels must be whole numbers")
    if labels.size != count or labels.ndim not in (1, 2) or len(labels) not in (1, count):
        raise ConfigError(f"{where}: labels of shape {' x '.join(map(str, labels.shape))} for {count} images")
    values = labels.reshape(-1).astype(np.int64)
    wrong = np.flatnonzero((values < first) | (values >= first + classes))
    if len(wrong):
        raise ConfigError(
            f"{where}, row {wrong[0]}: label {values[wrong[0]]} is outside the class range; "
            f"{first} to {first + classes - 1}"
        )
    return values


def array_blocks(images: np.ndarray, labels: np.ndarray, domain: int | None = None) -> Iterator[Block]:
    """Blocks of channel-first images from [n, H, W] or [n, H, W, 3]."""
    first = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    for start in range(0, len(labels), IMAGES_PER_BLOCK):
        block = labels[start : start + IMAGES_PER_BLOCK]
        yield Block(
            first[start : start + IMAGES_PER_BLOCK], block, None if domain is None else np.full(len(block), domain)
        )


def array_content(parts: Sequence[tuple[np.ndarray, np.ndarray]], names: tuple[str, ...], mismatch: str) -> Content:
    """A set of images and labels, of which the last part is for testing.

    mismatch: what to say if images have different sizes. Raises ConfigError.
    """
    if len({images.shape[1:] for images, _ in parts}) > 1:
        raise ConfigError(mismatch)
    *train, test = (len(images) for images, _ in parts)
    return Content(sum(train), test, chain.from_iterable(starmap(array_blocks, parts)), len(names), names)


@contextmanager
def refuse_damage(file: Path, what: str) -> Iterator[None]:
    """Turns whatever a library raises in this block, which reads a file, into ConfigError: `FILE: WHAT (REASON)`."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{file}: {what} ({library_reason(error)})") from error


def torchvision_dataset(name: str) -> Any:
    """The class of torchvision that knows where a set is published; imported by those who need it."""
    from torchvision import datasets

    return getattr(datasets, name)
