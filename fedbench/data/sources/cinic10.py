"""CINIC-10: folders train, valid and test of ten class folders; an image's origin (CIFAR-10, ImageNet) is its domain.

The published validation part is added to the training part, unless data.join_val is false.
"""

from pathlib import Path

from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.images import Item
from fedbench.data.reading.listing import listed_content, nonempty_images, require_folders
from fedbench.data.reading.published import Constants, Download, Extent, PublishedSet
from fedbench.data.sources.cifar10c import CIFAR10_CLASSES

CINIC_DOMAINS = ("cifar10", "imagenet")
ADDRESS = "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz"
PUBLISHED = {
    "cinic10": PublishedSet(
        Extent(90_000, (3, 32, 32), 10),
        ("train", "valid", "test"),
        below=("CINIC-10", "cinic-10"),
        size="0.7 GB",
        constants=Constants(
            (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835), "the authors' own README"
        ),
        is_needed=lambda name: name.endswith(".png"),
        downloads=lambda: (Download((ADDRESS,), "6ee4d0c996905fe93221de577967a372"),),
    )
}


class Options(Section):
    join_val: bool = Field(True, description="add the published validation part to the training part")


def read(name: str, folder: Path, options: Options) -> Content:
    train = [item for part in ("train", "valid")[: 1 + options.join_val] for item in listed_items(folder / part)]
    parts = {"train": train, "test": listed_items(folder / "test")}
    return listed_content(parts, CIFAR10_CLASSES, None, domain_names=CINIC_DOMAINS)


def listed_items(part: Path) -> list[Item]:
    """The images of a part by class. Raises ConfigError."""
    require_folders(part, CIFAR10_CLASSES)
    return [
        Item(file, label, str(file), CINIC_DOMAINS.index("cifar10" if file.name.startswith("cifar10-") else "imagenet"))
        for label, name in enumerate(CIFAR10_CLASSES)
        for file in nonempty_images(part / name)
    ]
