"""CIFAR-10-C: the published .npy files; each corruption type is a domain.

The published images are corrupted copies of CIFAR-10's test images; there is no corrupted training part. So every fifth
test image (index % 5 == 4), the same in all types, is a test image here, and the others are training images: no picture
is in both, under any corruption.

The files are read, never generated from CIFAR-10: libraries of such corruptions use the severities of ImageNet-C
(Gaussian noise with deviation .38 at severity 5; here .10), which would give another data set.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, field_validator

from fedbench.config import Section
from fedbench.data.cache import Block, Content
from fedbench.data.reading.arrays import array_blocks, checked_images, checked_labels, refuse_damage
from fedbench.data.reading.parts import is_test_row
from fedbench.data.reading.published import Download, Extent, PublishedSet
from fedbench.data.sources.cifar import CIFAR10
from fedbench.errors import ConfigError

Common = Literal[
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
]
Extra = Literal["speckle_noise", "gaussian_blur", "spatter", "saturate"]
Corruption = Literal[Common, Extra]
COMMON_CORRUPTIONS: tuple[Common, ...] = get_args(Common)
"""The fifteen types of the benchmark, in order."""
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SEVERITIES = 5
ADDRESS = "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1"


class Options(Section):
    severity: int = Field(5, ge=1, le=SEVERITIES, description="severity of the corruption")
    corruptions: list[Corruption] = Field(
        [*COMMON_CORRUPTIONS], min_length=1, description="corruption types (default: the fifteen of the benchmark)"
    )

    @field_validator("corruptions", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("corruptions")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("give each corruption once")
        return value


PUBLISHED = {
    "cifar10c": PublishedSet(
        Extent(50_000, (3, 32, 32), 10),
        ("labels.npy", *(f"{name}.npy" for name in COMMON_CORRUPTIONS)),
        below=("CIFAR-10-C",),
        size="2.9 GB",
        constants=CIFAR10._replace(source="those of CIFAR-10, from which the corrupted images are made"),
        extras=tuple(f"{name}.npy" for name in get_args(Extra)),
        downloads=lambda: (Download((ADDRESS,), "56bf5dcef84df0e2308c6dcbcbbd8499"),),
    )
}


def read(name: str, folder: Path, options: Options) -> Content:
    """The images of one severity, type by type. Raises ConfigError."""
    labels = label_array(folder / "labels.npy")
    files = {kind: image_array(folder / f"{kind}.npy", len(labels)) for kind in options.corruptions}
    shapes = {images.shape[1:] for images in files.values()}
    if len(shapes) > 1:
        raise ConfigError(f"{folder}: images of different sizes: {', '.join(map(str, sorted(shapes)))}")
    each = len(labels) // SEVERITIES
    part_labels = labels[:each]
    test = is_test_row(np.arange(each))
    start = (options.severity - 1) * each
    blocks = corrupted_blocks([images[start : start + each] for images in files.values()], part_labels, test)
    train, tests = (len(files) * int(rows.sum()) for rows in (~test, test))
    warnings = (
        f"corrupted copies of CIFAR-10's test images at severity {options.severity}; "
        "the set's own test part has every fifth picture, in all types",
    )
    return Content(
        train, tests, blocks, len(CIFAR10_CLASSES), CIFAR10_CLASSES, domain_names=tuple(files), warnings=warnings
    )


def corrupted_blocks(files: list[np.ndarray], labels: np.ndarray, test: np.ndarray) -> Iterator[Block]:
    """The training images of every type, then the test images."""
    for rows in (np.flatnonzero(~test), np.flatnonzero(test)):
        for domain, images in enumerate(files):
            yield from array_blocks(np.asarray(images[rows]), labels[rows], domain)


def map_array(path: Path) -> Any:
    """Maps the array in a .npy file. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; data.corruptions names types that are there")
    with refuse_damage(path, "incomplete or damaged .npy file"):
        return np.load(path, mmap_mode="r", allow_pickle=False)


def label_array(path: Path) -> np.ndarray:
    """int64 [5 * n]: the same n labels for each severity. Raises ConfigError."""
    images = map_array(path)
    count = getattr(images, "size", 0)
    if not count or count % SEVERITIES:
        raise ConfigError(f"{path}: {count} labels, not as many for each of {SEVERITIES} severities")
    labels = checked_labels(str(path), np.asarray(images), count, len(CIFAR10_CLASSES))
    differs = np.flatnonzero((labels.reshape(SEVERITIES, -1) != labels[: count // SEVERITIES]).any(axis=0))
    if len(differs):
        raise ConfigError(f"{path}, row {differs[0]}: different labels at different severities")
    return labels


def image_array(path: Path, count: int) -> np.ndarray:
    images = checked_images(str(path), map_array(path))
    if len(images) != count:
        raise ConfigError(f"{path}: {len(images)} images, and {count} labels in labels.npy")
    return images
