"""OrganAMNIST and OrganCMNIST: MedMNIST's .npz files. The published validation part is added to the training part."""

from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.constants import Constants
from fedbench.data.reading import published
from fedbench.data.reading.arrays import array_blocks, checked_images, checked_labels, unreadable_error
from fedbench.data.reading.download import Download
from fedbench.data.reading.published import Extent, PublishedSet, changed_warning
from fedbench.errors import ConfigError

ORGANS = (
    *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right", "liver", "lung-left"),
    *("lung-right", "pancreas", "spleen"),
)
RECORD = "https://zenodo.org/records/10519652/files/{}?download=1"
SUMS = {"organamnist": "68e3f8846a6bd62f0c9bf841c0d9eacc", "organcmnist": "b9ceb9546e10131b32923c5bbeaea2b1"}
MEDMNIST_DOWNLOAD_SIZES = {"organamnist": "38 MB", "organcmnist": "16 MB"}
TRAINS = {"organamnist": 34_561, "organcmnist": 12_975}
"""Number of training images."""


class Options(Section):
    """Keys `data.*` of a MedMNIST set."""

    join_val: bool = Field(True, description="add the published validation part to the training part")


def medmnist_downloads(file: str, md5: str) -> tuple[Download, ...]:
    return (Download(file, (RECORD.format(file),), md5),)


PUBLISHED = {
    name: PublishedSet(
        Extent(TRAINS[name], (1, 28, 28), 11),
        (f"{name}.npz",),
        below=(".medmnist",),
        downloads=partial(medmnist_downloads, f"{name}.npz", md5),
        sums=partial(dict, {f"{name}.npz": md5}),
        size=MEDMNIST_DOWNLOAD_SIZES[name],
        constants=Constants((0.5,), (0.5,), "the experiments of MedMNIST's authors"),
    )
    for name, md5 in SUMS.items()
}


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    return published.source(config, options, progress, PUBLISHED[config.name], read)


def read(name: str, folder: Path, options: Options) -> Content:
    """Warns if the file's checksum is not the published one."""
    path = folder / f"{name}.npz"
    parts = [load_part(path, part) for part in ("train", "val", "test")]
    if len({images.shape[1:] for images, _ in parts}) > 1:
        raise ConfigError(f"{path}: the parts hold images of different sizes")
    train = parts[:2] if options.join_val else parts[:1]
    blocks = chain.from_iterable(array_blocks(*part) for part in (*train, parts[2]))
    count = sum(len(labels) for _, labels in train)
    warnings = changed_warning(PUBLISHED[name], folder)
    return Content(count, len(parts[2][1]), blocks, len(ORGANS), ORGANS, warnings=warnings)


def load_part(path: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, H, W] and labels int64 [n] of a part. Raises ConfigError."""
    keys = [f"{part}_images", f"{part}_labels"]
    try:
        with np.load(path, allow_pickle=False) as arrays:
            absent = [key for key in keys if key not in arrays]
            images, labels = (None, None) if absent else (arrays[key] for key in keys)
    except Exception as error:
        raise unreadable_error(path, ".npz", error) from error
    if images is None or labels is None:
        raise ConfigError(f"{path}: no array {absent[0]} in it")
    where = f"{path}, {part} part"
    return checked_images(where, images), checked_labels(where, labels, len(images), len(ORGANS))
