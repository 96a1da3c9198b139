"""OrganAMNIST and OrganCMNIST: MedMNIST's .npz files. The published validation part is added to the training part."""

from pathlib import Path

import numpy as np
from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.arrays import array_content, checked_images, checked_labels, refuse_damage
from fedbench.data.reading.published import Constants, Download, Extent, PublishedSet
from fedbench.errors import ConfigError

ORGANS = (
    *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right", "liver", "lung-left"),
    *("lung-right", "pancreas", "spleen"),
)


class Options(Section):
    join_val: bool = Field(True, description="add the published validation part to the training part")


def organ_set(file: str, train: int, size: str, md5: str) -> PublishedSet:
    return PublishedSet(
        Extent(train, (1, 28, 28), len(ORGANS)),
        (file,),
        below=(".medmnist",),
        downloads=lambda: (Download((f"https://zenodo.org/records/10519652/files/{file}?download=1",), md5),),
        size=size,
        constants=Constants((0.5,), (0.5,), "the experiments of MedMNIST's authors"),
    )


PUBLISHED = {
    "organamnist": organ_set("organamnist.npz", 34_561, "38 MB", "68e3f8846a6bd62f0c9bf841c0d9eacc"),
    "organcmnist": organ_set("organcmnist.npz", 12_975, "16 MB", "b9ceb9546e10131b32923c5bbeaea2b1"),
}


def read(name: str, folder: Path, options: Options) -> Content:
    path = folder / f"{name}.npz"
    train, val, test = (load_part(path, part) for part in ("train", "val", "test"))
    parts = [train, val, test] if options.join_val else [train, test]
    return array_content(parts, ORGANS, f"{path}: the parts hold images of different sizes")


def load_part(path: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, H, W] and labels int64 [n] of a part. Raises ConfigError."""
    with refuse_damage(path, "incomplete or damaged .npz file"), np.load(path, allow_pickle=False) as arrays:
        for key in (f"{part}_images", f"{part}_labels"):
            if key not in arrays:
                raise ConfigError(f"{path}: no array {key} in it")
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    where = f"{path}, {part} part"
    return checked_images(where, images), checked_labels(where, labels, len(images), len(ORGANS))
