"""Folders of image files: CLASS or DOMAIN/CLASS, unsplit or below each part, or CLIENT/PART/CLASS."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.description import first_names
from fedbench.data.reading.images import Item
from fedbench.data.reading.listing import (
    MACOSX,
    folders_by_name,
    images_in,
    is_image,
    is_shown,
    listed_content,
    path_in_name,
    refuse_empty,
    subfolders,
)
from fedbench.data.reading.parts import part_names, with_test_part
from fedbench.errors import ConfigError, open_decision
from fedbench.user_code.parts import NAMES, part_in_name

BESIDE_IMAGES = ("Thumbs.db", "desktop.ini")
"""Files created by file managers."""
NO_CLASSES = "no class folders in it; CLASS/*.png, DOMAIN/CLASS/*.png or these below train and test are read"

Listing = dict[str, dict[str, list[Path]]]
"""Image files by domain (one without a name if there are none) and class, in ascending order."""
Parts = dict[str, Listing]


class Options(Section):
    size: int | None = Field(None, ge=1, description="resize every image to size x size pixels")
    domains: bool | None = Field(
        None, description="whether folders are DOMAIN/CLASS (default: if all have the same two or more class folders)"
    )
    test_part: Literal["test", "val"] | None = Field(
        None, description="folder with the test images (default: test, or val if there is no test)"
    )


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    path = path_in_name(config)
    if not path.is_dir():
        raise ConfigError(f"data folder:{path}: no such folder")
    parts, remarks = find_parts(path, options)
    refuse_two_spellings(path, classes_of(parts["train"]), "classes")
    refuse_two_spellings(path, [*parts["train"]], "domains")
    read_parts = partial(read, path, parts, remarks, options)
    return Source(f"folder:{path}", read_parts, tuple(image_files(parts)), options.model_dump())


def image_files(parts: Parts) -> Iterator[Path]:
    """All image files of all parts."""
    listings = (listing for part in parts.values() for listing in part.values())
    return (file for listing in listings for files in listing.values() for file in files)


def refuse_two_spellings(path: Path, names: Sequence[str], what: str) -> None:
    """Raises ConfigError for folders whose names differ in case or blanks alone."""
    spellings: dict[str, str] = {}
    for name in names:
        other = spellings.setdefault("".join(name.split()).casefold(), name)
        if other != name:
            raise ConfigError(
                f"{path}: the folders {other!r} and {name!r} differ in case or blanks alone: join them, or rename one "
                f"if they are two {what}"
            )


def find_parts(path: Path, options: Options) -> tuple[Parts, list[str]]:
    """The images of train, and perhaps val and test, and how the folders were read. Raises ConfigError.

    Without a test and a validation folder there is one part.
    """
    below = folders_by_name(path)
    if options.domains is None and are_clients(below):
        return of_clients(below, options)
    named = {part: below[name] for part, name in part_names(below).items()}
    if "train" not in named or 1 == len(named) < len(below):  # a class may be called train
        in_names = {part_in_name(name) for name in below}
        may_be_parts = len(in_names) > 1 and "train" in in_names and "" not in in_names
        if options.domains is None and may_be_parts and all(map(subfolders, below.values())):
            names = " and ".join(part for part in NAMES if part in in_names)
            raise open_decision(
                f"data folder:{path}",
                f"the folders {first_names([*below])} are named like parts",
                {
                    f"rename them to {names}": "parts of the data set",
                    "--data.domains true": "domains",
                    "--data.domains false": "classes",
                },
            )
        return listed_parts({"train": path}, options)
    chosen, remarks = with_test_part(named, options.test_part, f"{path} has no such folder")
    left_out = sorted(name for name, folder in below.items() if folder not in chosen.values())
    if left_out:
        remarks.append(f"folders of {path} that are not part of the data set and are ignored: {', '.join(left_out)}")
    parts, lines = listed_parts(chosen, options)
    return parts, lines + remarks


def listed_parts(folders: dict[str, Path], options: Options) -> tuple[Parts, list[str]]:
    """The images of these parts, and how the folders were read if that is not given. Raises ConfigError."""
    domains = has_domains(folders["train"]) if options.domains is None else options.domains
    parts = {part: list_images(folder, domains) for part, folder in folders.items()}
    train = parts["train"]
    for part, folder in folders.items():
        check_known_classes(train, parts[part], folder)
    for domain in train:
        if domain not in parts.get("test", train):
            raise ConfigError(f"{folders['test'] / domain}: no folder of this domain, but the training part has one")
    if options.domains is not None:
        return parts, []
    remark = f"read as DOMAIN/CLASS: {first_names([*train])} are domains; data.domains false if they are classes"
    return parts, [*([remark] if domains else []), *lower_folders(folders["train"], train)]


def lower_folders(path: Path, train: Listing) -> list[str]:
    """A remark on pictures in folders of the classes. Raises ConfigError if such folders seem to be the classes.

    They do where two classes have folders of the same name two or more levels below them, and such names differ.
    """
    class_depth = 1 if "" in train else 2
    places = {folder.relative_to(path) for folder in {file.parent for file in image_files({"train": train})}}
    lower = sorted(place for place in places if len(place.parts) > class_depth)
    by_name: dict[str, dict[str, Path]] = {}
    for place in lower:
        if class_depth == 1 and Path(place.parts[0]) not in places:  # else pictures of the class lie beside
            for name in place.parts[2:]:
                by_name.setdefault(name, {})[place.parts[0]] = place
    both = next((sorted(same.values()) for same in by_name.values() if len(same) > 1), None)
    if both and len(by_name) > 1:
        raise ConfigError(
            f"{path}: pictures lie in {both[0]} and {both[1]}, deeper than DOMAIN/CLASS: set data.domains false if the "
            f"upper folders are the classes, or move {both[0].name} up if that is one"
        )
    return [f"pictures lie in folders of the classes ({len(lower)}), for example {lower[0]}"] if lower else []


def are_clients(below: dict[str, Path]) -> bool:
    """Whether folders hold parts: CLIENT/train/CLASS, and CLIENT/test/CLASS in all or none.

    Raises ConfigError for a near miss.
    """
    inside = {name: folders_by_name(folder) for name, folder in below.items()}
    parts = {name: part_names(own) for name, own in inside.items()}
    whole = [name for name, own in inside.items() if "train" in parts[name] and len(parts[name]) == len(own) > 1]
    if whole and len(whole) < len(below):
        other = next(name for name in below if name not in whole)
        raise ConfigError(
            f"{below[other]}: no train and test folder, which {below[whole[0]]} has; a client needs both "
            "(CLIENT/train/CLASS and CLIENT/test/CLASS)"
        )
    train = [own[parts[name]["train"]] for name, own in inside.items() if "train" in parts[name] and len(own) == 1]
    classes = Counter(chain.from_iterable(map(folders_by_name, train)))
    return bool(whole) or (1 < len(train) == len(below) and max(classes.values(), default=0) > 1)


def of_clients(below: dict[str, Path], options: Options) -> tuple[Parts, list[str]]:
    """The images of clients with their own parts."""
    by_part: Parts = {part: {} for part in NAMES}
    lines = set[str]()
    for client, folder in below.items():
        inside = folders_by_name(folder)
        named = {part: inside[name] for part, name in part_names(inside).items()}
        chosen, remarks = with_test_part(named, options.test_part, f"{folder} has no such folder")
        lines.update(remarks)
        for part, place in chosen.items():
            by_part[part][client] = by_class(place, empty=True)
    for part in ("test", "val"):
        check_known_classes(by_part["train"], by_part[part], Path(part))
    return {part: listing for part, listing in by_part.items() if listing}, [
        f"read as CLIENT/PART/CLASS: {first_names([*below])} are clients (--partition natural)",
        *sorted(lines),
    ]


def check_known_classes(train: Listing, other: Listing, folder: Path) -> None:
    """Raises ConfigError for a class or domain that the training part lacks."""
    names = set(classes_of(train))
    for domain, classes in other.items():
        for name in classes:
            if name not in names:
                raise ConfigError(f"{folder / domain / name}: no folder of this class in the training part")
        if domain not in train:
            raise ConfigError(f"{folder / domain}: no folder of this domain in the training part")


def classes_of(listing: Listing) -> tuple[str, ...]:
    return tuple(sorted({name for classes in listing.values() for name in classes}))


def has_domains(path: Path) -> bool:
    """Whether all folders hold the same two or more folders and nothing else.

    Raises ConfigError for a near miss: folders of which several hold a folder of the same name, but not all.
    """
    below = {folder: [*folders_by_name(folder)] for folder in subfolders(path)}
    counts = Counter(chain.from_iterable(below.values()))
    if len(counts) < 2 or max(counts.values()) < 2:
        return False
    lacking = next((folder for folder, names in below.items() if len(names) < len(counts)), None)
    beside = next((images[0] for folder in below if (images := images_in(folder))), None)
    if lacking and beside:
        return False
    if beside:
        raise ConfigError(
            f"{beside}: lies beside the folders {first_names([*counts])}, which all folders of {path} have: move it "
            "away and they are DOMAIN/CLASS; or set data.domains false (CLASS with folders in it)"
        )
    if lacking:
        name = min({*counts} - {*below[lacking]})
        other = next(folder.name for folder, names in below.items() if name in names)
        raise ConfigError(
            f"{lacking}: no folder {name}, which {other} has; set data.domains true (DOMAIN/CLASS) or false (CLASS "
            "with folders in it)"
        )
    return True


def list_images(path: Path, domains: bool) -> Listing:
    """The images of a part by domain and class. Raises ConfigError."""
    folders = folders_by_name(path) if domains else {"": path}
    classes = {domain: by_class(folder) for domain, folder in folders.items()}
    if not any(classes.values()):
        raise ConfigError(f"{path}: {NO_CLASSES}")
    return classes


def by_class(path: Path, empty: bool = False) -> dict[str, list[Path]]:
    """Images below each class folder; hidden files and files of other types are ignored. Raises ConfigError.

    empty: whether to omit folders without images.
    """
    images = {name: sorted(images_below(folder), key=Path.as_posix) for name, folder in folders_by_name(path).items()}
    if not images:
        raise ConfigError(f"{path}: {NO_CLASSES}")
    for name, files in images.items():
        if not files and not empty:
            refuse_empty(path / name)
    return {name: files for name, files in images.items() if files}


def images_below(folder: Path) -> Iterator[Path]:
    """The image files in a folder and below it. Raises ConfigError for a link whose file is gone."""
    for file in files_below(folder):
        if is_image(file.name):
            if not file.exists():
                raise ConfigError(f"{file}: a link to a file that is missing; remove it, or bring the file back")
            yield file


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder, its subfolders and those that links lead to, each folder once; without hidden ones."""
    visited = {os.path.realpath(folder)}
    for inside, folders, names in os.walk(folder, followlinks=True):
        real = {os.path.realpath(Path(inside, name)): name for name in sorted(folders, reverse=True) if is_shown(name)}
        folders[:] = [name for target, name in real.items() if target not in visited]
        visited.update(real)
        yield from (Path(inside, name) for name in names if not name.startswith("."))


def unread_files(path: Path, parts: Parts) -> Iterator[str]:
    """Says what below a folder is not read."""
    read = set(image_files(parts))
    above = {folder for file in read for folder in file.parents}
    others, strays = list[Path](), list[Path]()
    for file in files_below(path):
        if is_image(file.name):
            strays += [file] if file not in read and file.parent in above else []
        elif file.name not in BESIDE_IMAGES:
            others.append(file)
    for what, files in (("files of other types", others), ("pictures in no class folder", strays)):
        if files:
            yield f"{what} are ignored ({len(files)}), for example {min(files).relative_to(path)}"
    if any(entry for pattern in (MACOSX, f"*/{MACOSX}") for entry in path.glob(pattern)):
        yield f"folders {MACOSX}, which macOS adds to archives, are left out"


def read(path: Path, parts: Parts, remarks: list[str], options: Options) -> Content:
    names, domains = classes_of(parts["train"]), tuple(name for name in parts["train"] if name)
    items = {
        part: [
            Item(file, names.index(name), str(file), domains.index(domain) if domain else None)
            for domain, classes in listing.items()
            for name, files in classes.items()
            for file in files
        ]
        for part, listing in parts.items()
    }
    lines = (*remarks, *unread_files(path, parts))
    return listed_content(items, names, options.size, None, domain_names=domains, warnings=lines)
