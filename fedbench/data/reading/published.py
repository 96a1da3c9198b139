"""Sets that their makers publish as files: found in a folder, downloaded, or imported; kept whole or not at all.

A set lies in `$FEDBENCH_CACHE/files/NAME`, or wherever `data.root` says. A module of `sources` with such sets has a
table PUBLISHED, the keys `Options`, and a function `read(name, folder, options) -> Content`.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from fedbench import cache_folder
from fedbench.config import DataConfig, Section
from fedbench.data import archives, cache
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.errors import ConfigError, first_line
from fedbench.silence import silence_logger

DEPTH = 3
"""Folders below the one named in which an import looks for a set."""
STAMP = "complete"
"""Written last into a stored set; its time stands for all files of the set."""
HTTP_TIMEOUT = 20.0
"""Seconds without an answer after which a download is given up."""
CHUNK_BYTES = 2**20
HEADERS = {"User-Agent": "fedbench", "Accept-Encoding": "identity"}
"""No encoding, or what is already packed would be unpacked on the way and have another checksum."""

OnBytes = Callable[[int, int], None]
"""Called with the bytes that have come, and how many there are."""
EXAMPLES = "all pixels of the published training part, as in PyTorch's examples and most federated code"


class Constants(NamedTuple):
    """Normalises a set: numbers per channel of pixels in [0, 1], or None to measure them; source: their origin.

    `data.mean` and `data.std` override them. Deviations are over all pixels of the training part. Much federated code
    has smaller ones (CIFAR-10 .2023, MNIST .3015): means over images of each image's own deviation.
    """

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    source: str


MEASURED = Constants(None, None, "no published or common constants: measured on the training part when it is decoded")
NOT_NORMALISED = Constants(None, None, "tokens are not normalised")


class Extent(NamedTuple):
    """Training samples of a set, the shape of one, classes, and kind: what a run on it takes can be told by these."""

    train: int
    shape: tuple[int, ...]
    classes: int
    kind: Literal["image", "feature", "token"] = "image"


@dataclass(frozen=True)
class Download:
    """A published file. addresses: tried in this order; the first one ends with the name of the file."""

    addresses: tuple[str, ...]
    md5: str

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.addresses[0]).path).name


@dataclass(frozen=True)
class PublishedSet:
    """A published set.

    extent: how large it is. names: the files and folders that must be there, in one folder, each possibly packed as
    NAME.gz. below: folders of the root in which they may lie. extras: patterns of further files that belong to the set.
    is_needed: which files of an archive are needed. downloads: what is fetched; none where nobody publishes an address
    with a checksum. sums: MD5 by name of files that are fetched in an archive. origin: where the files are to be had.
    pickled: they are Python pickles. images: how many samples the set has, where no checksum would tell that some are
    missing. size: of what is to be fetched, in words. licence: of the data, in words. constants: those that normalise
    the set.
    """

    extent: Extent
    names: tuple[str, ...]
    below: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    is_needed: Callable[[str], bool] = field(default=lambda name: True)
    downloads: Callable[[], tuple[Download, ...]] = tuple
    sums: Callable[[], dict[str, str]] = dict
    origin: str = ""
    pickled: bool = False
    images: int = 0
    size: str = ""
    licence: str = ""
    constants: Constants = MEASURED

    def has(self, name: str) -> bool:
        """Whether a file of this name belongs to the set as it is; an .npz is a zip archive too, but not to unpack."""
        return name in self.names or name.removesuffix(".gz") in self.names

    def checksums(self) -> dict[str, str]:
        """The published MD5 of its files by name."""
        return {one.name: one.md5 for one in self.downloads() if self.has(one.name)} | self.sums()


Read = Callable[[str, Path, Any], Content]


def source(
    config: DataConfig, options: Section, progress: OnProgress | None, published: PublishedSet, read: Read
) -> Source:
    """The set in `data.root` or, downloaded now if need be, in the cache. Raises ConfigError."""
    if config.root:
        root = config.root.expanduser().absolute()
        folder = find_at(published, root)
        if folder is None:
            raise ConfigError(f"data.root = {str(config.root)!r}: {missing_text(published, [root])}")
        files = files_of(published, folder)
    else:
        folder = folder_in_cache(config.name)
        if not is_complete(folder):
            with cache.hold_lock(folder.with_name(f"{config.name}.lock")):
                if not is_complete(folder):
                    download_set(config.name, published, folder, progress)
        files = (folder / STAMP,)
    reader = partial(read_published, config.name, folder, options, published, read)
    return Source(config.name, reader, files, options.model_dump(mode="json"))


def read_published(name: str, folder: Path, options: Section, published: PublishedSet, read: Read) -> Content:
    """The content of a published set, with its constants, and warnings where files are changed or images are missing.

    Raises ConfigError.
    """
    if published.pickled:
        check_pickles(published, folder)
    parts = read(name, folder, options)
    warnings, count = [*parts.warnings], parts.train + parts.test
    changed = [] if published.pickled else files_with_wrong_checksum(published, folder)
    if changed:
        names = ", ".join(path.name for path in changed)
        warnings.append(f"not the published files (MD5 differs): {names}; a subset, or changed")
    if published.images and count != published.images:
        warnings.append(f"{count:,} samples, not the {published.images:,} that were published")
    return replace(
        parts,
        mean=published.constants.mean,
        std=published.constants.std,
        warnings=tuple(warnings),
        official=not changed and {path.name for path in entries(published, folder)} <= published.checksums().keys(),
    )


def folder_in_cache(name: str) -> Path:
    """Where published files lie in the cache."""
    return cache_folder.root() / "files" / name


def is_complete(folder: Path) -> bool:
    return (folder / STAMP).is_file()


def find_entry(folder: Path, name: str) -> Path | None:
    """A file or folder of the set, packed or not."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.exists()), None)


def missing_names(published: PublishedSet, folder: Path) -> list[str]:
    return [name for name in published.names if find_entry(folder, name) is None]


def find_at(published: PublishedSet, root: Path) -> Path | None:
    """The folder at or right below a root that holds the whole set."""
    folders = (*(root / name for name in published.below), root)
    return next((folder for folder in folders if not missing_names(published, folder)), None)


def find_below(published: PublishedSet, root: Path) -> Path | None:
    """The folder of a set at any depth up to DEPTH: the root, else the place whose path is most like the usual one.

    Raises ConfigError where two are equally good: MNIST and Fashion-MNIST have files of the same names.
    """
    folders = [folder for folder in folders_below(root) if not missing_names(published, folder)]
    if not folders or folders[0] == root:
        return folders[0] if folders else None
    best, *others = sorted(folders, key=lambda folder: path_rank(published, folder))
    if others and path_rank(published, others[0]) == path_rank(published, best):
        raise ConfigError(f"{root}: both {best} and {others[0]} hold such files; name one of them")
    return best


def path_rank(published: PublishedSet, folder: Path) -> int:
    """0 for the most usual path; one more than the last for a path that is not usual."""
    usual = [Path(name).parts for name in published.below]
    return next((i for i, parts in enumerate(usual) if folder.parts[-len(parts) :] == parts), len(usual))


def folders_below(root: Path) -> Iterator[Path]:
    """The root and the folders below it, the upper ones first."""
    layer = [root]
    for _ in range(DEPTH + 1):
        yield from layer
        # os.walk passes over folders that may not be read
        layer = sorted(folder / name for folder in layer for name in next(os.walk(folder), ("", (), ()))[1])


def missing_text(published: PublishedSet, folders: list[Path]) -> str:
    """The files that are missing, in words; names the folder that comes closest."""
    best = min(folders, key=lambda folder: len(missing_names(published, folder)))
    absent = missing_names(published, best)
    if len(absent) == len(published.names):
        return f"{', '.join(published.names)} not found there; give the folder that holds them"
    return f"{', '.join(absent)} missing in {best}"


def entries(published: PublishedSet, folder: Path) -> list[Path]:
    """The files of the set that are there."""
    named = [path for name in published.names if (path := find_entry(folder, name))]
    return named + [path for pattern in published.extras for path in sorted(folder.glob(pattern))]


def files_of(published: PublishedSet, folder: Path) -> tuple[Path, ...]:
    """Every file that can decide what is decoded."""
    tops = entries(published, folder)
    below = (Path(inside, name) for top in tops for inside, _, names in os.walk(top) for name in sorted(names))
    return (*(path for path in tops if path.is_file()), *below)


def files_with_wrong_checksum(published: PublishedSet, folder: Path) -> list[Path]:
    """Files whose checksum is not the published one; a file without a published checksum is not looked at."""
    sums = published.checksums()
    return [path for path in entries(published, folder) if path.name in sums and file_md5(path) != sums[path.name]]


def check_pickles(published: PublishedSet, folder: Path) -> None:
    """Raises ConfigError for a pickle without the published checksum: to read it would run whatever is in it."""
    for path in files_with_wrong_checksum(published, folder):
        raise ConfigError(
            f"{path}: not the published file (MD5 differs); it is a Python pickle, which can run code, and only read "
            "with the published checksum"
        )


def download_set(name: str, published: PublishedSet, folder: Path, progress: OnProgress | None) -> None:
    """Fetch the published files to a folder, whole or not at all. Raises ConfigError."""
    by_hand = f"import them from where you have them: fedbench data {name} --from PATH"
    lacks = f"data {name}: not here" + (f" ({published.size})" if published.size else "")
    if not published.downloads():
        raise ConfigError(f"{lacks}, and it has no public address with a checksum; {published.origin}, then {by_hand}")
    if progress is None:
        logging.getLogger("fedbench").info("downloading data %s (%s)", name, published.size)
    try:
        with cache.replace_folder(folder) as part:
            fetch_files(name, published, part, progress)
            (part / STAMP).write_text("whole\n")
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{lacks}, and the download failed ({failure_reason(error)}); put {', '.join(published.names)} into a "
            f"folder and name it with --data.root, or {by_hand} (they are kept in {folder})"
        ) from error


def fetch_files(name: str, published: PublishedSet, part: Path, progress: OnProgress | None) -> None:
    """Downloads into a folder, archives unpacked."""
    raw = part / "raw"
    raw.mkdir()
    for download in published.downloads():
        fetch(download, raw, partial(progress, f"downloading {name}") if progress else None)
        if not published.has(download.name) and archives.is_archive(raw / download.name):
            archives.extract(raw / download.name, raw, published.is_needed, progress)
            (raw / download.name).unlink()
    folder = find_below(published, raw)
    if folder is None:
        raise ConfigError(
            f"data {name}: what was downloaded is not the set; {missing_text(published, list(folders_below(raw)))}"
        )
    take_files(published, folder, part, move=True)
    shutil.rmtree(raw, ignore_errors=True)


def take_files(published: PublishedSet, folder: Path, part: Path, move: bool) -> None:
    """Put the files of a set, and no others, into a folder."""
    for path in entries(published, folder):
        archives.move_or_copy(path, part / path.name, published.is_needed, move)


def fetch(download: Download, folder: Path, progress: OnBytes | None = None) -> None:
    """One file, from the first address that gives it with the published checksum. Raises OSError or ValueError."""
    import pooch  # which a process that downloads nothing does without

    bar = ByteCount(progress) if progress else False
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK_BYTES, timeout=HTTP_TIMEOUT, headers=HEADERS)
    for number, address in enumerate(download.addresses, 1):
        try:
            with silence_logger("pooch"):
                pooch.retrieve(address, f"md5:{download.md5}", download.name, folder, downloader=downloader)
            return
        except (OSError, ValueError):
            if number == len(download.addresses):
                raise


class ByteCount:
    """A progress bar as pooch drives it, which counts whole chunks and says the total at the end."""

    def __init__(self, progress: OnBytes) -> None:
        self.total, self._done, self._progress = 0, 0, progress

    def update(self, size: int) -> None:
        self._done += size
        self._progress(min(self._done, self.total) if self.total else self._done, max(self._done, self.total))

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def failure_reason(error: BaseException) -> str:
    """Why a download failed: the system's own words, which requests wraps several times."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return "no answer" if isinstance(error, TimeoutError) else first_line(error).rstrip(":")


def file_md5(path: Path) -> str:
    import pooch

    return str(pooch.file_hash(str(path), alg="md5"))
