"""Office-Caltech10, DomainNet's ten classes and PACS: folders DOMAIN/CLASS of images, with or without split lists.

A set's own lists define the parts if they exist for every domain: DomainNet's DOMAIN_train.txt and DOMAIN_test.txt,
PACS' DOMAIN_train_kfold.txt and DOMAIN_crossval_kfold.txt, or one splits.csv with the columns path and part (train or
test). Without lists every fifth image of each class in each domain is a test image.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.images import Item
from fedbench.data.reading.listing import (
    ListedImage,
    SeenFiles,
    listed_content,
    nonempty_images,
    path_below,
    read_columns,
    read_list,
    require_folders,
)
from fedbench.data.reading.parts import is_test_row
from fedbench.data.reading.published import Download, Extent, PublishedSet
from fedbench.errors import ConfigError

Parts = dict[str, list[Item]]
"""The images of train and test."""
SPLITS_FILE = "splits.csv"


@dataclass(frozen=True)
class FolderLayout:
    """What a set consists of.

    domains, classes: names of folders, in the order of their numbers. size: pixels a side, None as published. images:
    the published number, 0 if it depends on the lists. lists: suffixes of the lists of training and test images.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    size: int | None
    images: int = 0
    lists: tuple[str, ...] = ()

    def is_needed(self, name: str) -> bool:
        """Whether a file is a list, or an image of one of the classes."""
        path = PurePosixPath(name)
        return path.parent.name in self.classes or path.suffix in (".txt", ".csv")


LAYOUTS = {
    "office-caltech10": FolderLayout(
        ("amazon", "caltech", "dslr", "webcam"),
        (
            *("back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse"),
            *("mug", "projector"),
        ),
        256,
        images=2533,
    ),
    "domainnet10": FolderLayout(
        ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
        (
            *("bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass"),
            "zebra",
        ),
        256,
        lists=("_train.txt", "_test.txt"),
    ),
    "pacs": FolderLayout(
        ("art_painting", "cartoon", "photo", "sketch"),
        ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
        None,
        images=9991,
        lists=("_train_kfold.txt", "_crossval_kfold.txt"),
    ),
}
DOMAINNET = "http://csr.bu.edu/ftp/visda/2019/multi-source/"
DOMAINNET_FILES = {
    "groundtruth/clipart.zip": "cd0d8f2d77a4e181449b78ed62bccf1e",
    "infograph.zip": "720380b86f9e6ab4805bb38b6bd135f8",
    "groundtruth/painting.zip": "1ae32cdb4f98fe7ab5eb0a351768abfd",
    "quickdraw.zip": "bdc1b6f09f277da1a263389efe0c7a66",
    "real.zip": "dcc47055e8935767784b7162e7c7cca6",
    "sketch.zip": "658d8009644040ff7ce30bb2e820850f",
    "domainnet/txt/clipart_train.txt": "b4349693a7f9c05c53955725c47ed6cb",
    "domainnet/txt/infograph_train.txt": "379b50054f4ac2018dca4f89421b92d9",
    "domainnet/txt/painting_train.txt": "7db0e7ca73ad9982f6e1f7f3ef372c0a",
    "domainnet/txt/quickdraw_train.txt": "b732ced3939ac8efdd8c0a889dca56cc",
    "domainnet/txt/real_train.txt": "8ebf02c2075fadd564705f0dc7cd6291",
    "domainnet/txt/sketch_train.txt": "1233bd18aa9a8a200bf4cecf1c34ef3e",
    "domainnet/txt/clipart_test.txt": "f5ddbcfd657a3acf9d0f7da10db22565",
    "domainnet/txt/infograph_test.txt": "779626b50869edffe8ea6941c3755c71",
    "domainnet/txt/painting_test.txt": "232b35dc53f26d414686ae579e38d9b5",
    "domainnet/txt/quickdraw_test.txt": "c1a828fdfe216fb109f1c0083a252c6f",
    "domainnet/txt/real_test.txt": "6098816791c3ebed543c71ffa11b9054",
    "domainnet/txt/sketch_test.txt": "d8a222e4672cfd585298aa14d02ea441",
}
"""All of DomainNet, of which the ten classes are kept, with MD5; clipart and painting are the cleaned versions."""


class Options(Section):
    size: int | None = Field(
        None, ge=1, description="resize every image to size x size pixels (default: 256; PACS: as published)"
    )


def domain_set(name: str, train: int, below: tuple[str, ...], size: str, origin: str = "") -> PublishedSet:
    layout, files = LAYOUTS[name], DOMAINNET_FILES if name == "domainnet10" else {}
    side = layout.size or 227  # of PACS
    return PublishedSet(
        Extent(train, (3, side, side), len(layout.classes)),
        layout.domains,
        below=below,
        extras=("*.txt", SPLITS_FILE),
        is_needed=layout.is_needed,
        downloads=lambda: tuple(Download((DOMAINNET + path,), md5) for path, md5 in files.items()),
        origin=origin,
        images=layout.images,
        size=size,
    )


PUBLISHED = {
    "office-caltech10": domain_set(
        "office-caltech10",
        2_025,
        ("office_caltech_10", "office_caltech_10_dataset/office_caltech_10"),
        "2,533 images",
        "get the images of Gong et al. (2012) or of FedBN's benchmark (folders amazon, caltech, dslr, webcam)",
    ),
    "domainnet10": domain_set("domainnet10", 18_000, ("DomainNet", "domainnet"), "16 GB, of which ten classes stay"),
    "pacs": domain_set(
        "pacs", 8_000, ("PACS", "kfold", "PACS/kfold"), "9,991 images, 0.17 GB", "get the images of Li et al. (2017)"
    ),
}


def read(name: str, folder: Path, options: Options) -> Content:
    layout = LAYOUTS[name]
    require_folders(folder, layout.domains, "domain")
    warnings: tuple[str, ...] = ()
    if (folder / SPLITS_FILE).is_file():
        parts = by_table(folder, layout)
    elif any((folder / f"{domain}{suffix}").is_file() for domain in layout.domains for suffix in layout.lists):
        parts = by_lists(folder, layout)
    else:
        parts = by_turns(folder, layout)
        warnings = ("no lists of parts: every fifth image of each class and domain is a test image",)
    for word, items in zip(("training", "test"), parts.values(), strict=True):
        for number, domain in enumerate(layout.domains):
            if number not in {item.domain for item in items}:
                raise ConfigError(f"{folder / domain}: no {word} images of this domain")
    size = options.size or layout.size
    return listed_content(parts, layout.classes, size, domain_names=layout.domains, warnings=warnings)


def by_turns(folder: Path, layout: FolderLayout) -> Parts:
    parts: Parts = {"train": [], "test": []}
    for domain, name_of_domain in enumerate(layout.domains):
        require_folders(folder / name_of_domain, layout.classes)
        for label, name in enumerate(layout.classes):
            for index, file in enumerate(nonempty_images(folder / name_of_domain / name)):
                parts["test" if is_test_row(index) else "train"].append(Item(file, label, str(file), domain))
    return parts


def by_lists(folder: Path, layout: FolderLayout) -> Parts:
    """Lines `DOMAIN/CLASS/FILE NUMBER`; each class must always have the same number."""
    parts: Parts = {"train": [], "test": []}
    seen, numbers = SeenFiles(), dict[str, str]()
    for part, suffix in zip(parts, layout.lists, strict=True):
        for domain in layout.domains:
            path = folder / f"{domain}{suffix}"
            if not path.is_file():
                raise ConfigError(f"{path}: missing, but the set has other lists")
            for row in read_list(path, " "):
                if len(row.values) != 2 or not row.values[1].isdigit():
                    raise ConfigError(f"{row.where}: expected a path and a class number")
                item = listed_item(folder, layout, row.values[0], row, seen)
                if PurePosixPath(row.values[0]).parts[:1] != (domain,):
                    raise ConfigError(f"{row.where}: {row.values[0]} is not of the domain {domain}")
                if item is None:
                    continue
                check_number(numbers, layout.classes[item.label], row)
                parts[part].append(item)
    return parts


def check_number(numbers: dict[str, str], name: str, row: ListedImage) -> None:
    """Checks that folders and numbers of a list agree."""
    class_number = row.values[1]
    if numbers.setdefault(name, class_number) != class_number:
        raise ConfigError(f"{row.where}: class {name} has number {class_number}, before it had {numbers[name]}")
    if (other := next(name_of_number for name_of_number, number in numbers.items() if number == class_number)) != name:
        raise ConfigError(f"{row.where}: number {class_number} is class {name}, before it was {other}")


def by_table(folder: Path, layout: FolderLayout) -> Parts:
    """splits.csv: columns path and part; others are ignored."""
    parts, seen = Parts(train=[], test=[]), SeenFiles()
    for path, part, row in read_columns(folder / SPLITS_FILE, "path", "part"):
        if part not in parts:
            raise ConfigError(f"{row.where}: part {part!r}; expected train or test")
        item = listed_item(folder, layout, path, row, seen)
        if item is None:
            raise ConfigError(f"{row.where}: {path} is not in a class of this set")
        parts[part].append(item)
    return parts


def listed_item(folder: Path, layout: FolderLayout, path: str, row: ListedImage, seen: SeenFiles) -> Item | None:
    """The item of a listed file; None for classes not in the set. Raises ConfigError."""
    file_path = path_below(folder, path, row.where)
    domain, name, *rest = (*PurePosixPath(path).parts, "", "")[:3]
    if domain not in layout.domains or not rest[0]:
        raise ConfigError(f"{row.where}: {path} is not DOMAIN/CLASS/FILE")
    if name not in layout.classes:
        return None
    file = seen.add(file_path, row.where)
    return Item(file, layout.classes.index(name), f"{file} ({row.where})", layout.domains.index(domain))
