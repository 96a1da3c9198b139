"""Folders of image files: CLASS or DOMAIN/CLASS, once for all or once each below train and test."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.images import Item, is_test_row
from fedbench.data.reading.listing import images_in, is_image, listed_content, refuse_empty, subfolders
from fedbench.errors import ConfigError

TEST = ("test", "val", "valid", "validation")
"""Names of the folder with the test part; the first that exists is taken."""

Listing = dict[str, dict[str, list[Path]]]
"""Image files by domain (one without a name where there are none) and class, all in ascending order."""


class Options(Section):
    """Keys `data.*` of a folder source."""

    size: int | None = Field(None, ge=1, description="resize every image to size x size pixels")
    domains: bool | None = Field(
        None, description="whether folders are DOMAIN/CLASS (default: if all have the same class folders, two or more)"
    )


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    path = Path(config.root or ".", Path(config.name.partition(":")[2]).expanduser()).resolve()
    if not path.is_dir():
        raise ConfigError(f"data folder:{path}: no such folder")
    train, test = find_parts(path, options.domains)
    guessed = options.domains is None and "" not in train
    files = tuple(file for part in (train, test) for own in part.values() for some in own.values() for file in some)
    return Source(f"folder:{path}", partial(read, train, test, options, guessed), files, options.model_dump())


def find_parts(path: Path, domains: bool | None) -> tuple[Listing, Listing]:
    """Training and test images. Without a test folder every fifth image of each class (and domain) is a test image."""
    inside = {folder.name for folder in subfolders(path)}
    held_out = next((name for name in TEST if name in inside), None)
    if "train" in inside and held_out:
        domains = has_domains(path / "train") if domains is None else domains
        return checked_parts(*(listing(path / part, domains) for part in ("train", held_out)), path / held_out)
    place = path / "train" if inside == {"train"} else path
    found = listing(place, has_domains(place) if domains is None else domains)
    return tuple(  # type: ignore[return-value]
        {
            domain: {name: [f for i, f in enumerate(files) if is_test_row(i) == test] for name, files in own.items()}
            for domain, own in found.items()
        }
        for test in (False, True)
    )


def checked_parts(train: Listing, test: Listing, place: Path) -> tuple[Listing, Listing]:
    for domain, own in test.items():
        for name in own:
            if name not in classes_of(train):
                raise ConfigError(f"{place / domain / name}: no folder of this class in the training part")
        if domain not in train:
            raise ConfigError(f"{place / domain}: no folder of this domain in the training part")
    for domain in train:
        if domain not in test:
            raise ConfigError(f"{place / domain}: no folder of this domain, though the training part has it")
    return train, test


def classes_of(found: Listing) -> tuple[str, ...]:
    return tuple(sorted({name for own in found.values() for name in own}))


def has_domains(path: Path) -> bool:
    """Whether all folders hold folders only, the same ones, two or more. Raises ConfigError where it is a near miss."""
    below = {folder: [own.name for own in subfolders(folder)] for folder in subfolders(path)}
    if len(below) < 2 or any(len(names) < 2 or images_in(folder) for folder, names in below.items()):
        return False
    first, *others = below.values()
    every = {name for names in below.values() for name in names}
    for folder, names in below.items():
        if any(set(first) != set(own) for own in others) and set(first).intersection(*others) and set(names) != every:
            raise ConfigError(
                f"{folder}: no folder {min(every - set(names))}, which its neighbours have; set data.domains true "
                "(DOMAIN/CLASS) or false (CLASS with folders in it)"
            )
    return all(set(first) == set(names) for names in others)


def listing(path: Path, domains: bool) -> Listing:
    """Raises ConfigError."""
    places = {folder.name: folder for folder in subfolders(path)} if domains else {"": path}
    found = {domain: by_class(place) for domain, place in places.items()}
    if not any(found.values()):
        raise ConfigError(f"{path}: no class folders in it")
    return found


def by_class(path: Path) -> dict[str, list[Path]]:
    """Images below each class folder; hidden files and files of other kinds are left out. Raises ConfigError."""
    found = {folder.name: sorted(images_below(folder), key=Path.as_posix) for folder in subfolders(path)}
    if not found:
        raise ConfigError(f"{path}: no class folders in it")
    for name, files in found.items():
        if not files:
            refuse_empty(path / name)
    return found


def images_below(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if is_image(name))


def read(train: Listing, test: Listing, options: Options, guessed: bool) -> Content:
    """A warning says where folders were taken for domains because they look like it."""
    names, domains = classes_of(train), tuple(name for name in train if name)
    parts = [
        [
            Item(file, names.index(name), str(file), domains.index(domain) if domain else None)
            for domain, own in part.items()
            for name, files in own.items()
            for file in files
        ]
        for part in (train, test)
    ]
    warnings = (f"read as DOMAIN/CLASS: {', '.join(domains)} are domains; data.domains false if they are classes",)
    return listed_content(*parts, names, options.size, domains, channels=None, warnings=warnings if guessed else ())
