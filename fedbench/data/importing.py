"""Published files that a user already has, taken into the cache."""

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fedbench.data import cache
from fedbench.data.sources import torchvision
from fedbench.errors import ConfigError


def import_files(name: str, path: Path) -> Path:
    """Copy the published files of a set from a folder or an archive (tar, zip) into the cache; returns their folder.

    Raises ConfigError when files are missing, or an archive is damaged or has paths that point outside.
    """
    published = torchvision.PUBLISHED.get(name)
    if published is None:
        raise ConfigError(f"--from is for {', '.join(torchvision.PUBLISHED)}; give {name} its path instead")
    if not path.exists():
        raise ConfigError(f"--from {path}: no such file or folder")
    folder = torchvision.store(name)
    with cache.locked(folder.with_name(f"{name}.lock")), unpacked(published.archive, path) as place:
        files = search(published, place)
        if files is None:
            raise ConfigError(f"--from {path}: {torchvision.expected(published)} not found there")
        if published.pickled:
            torchvision.check_pickles(published, files)
        with cache.writing(folder.parent), cache.replacing(folder) as part:
            (part / published.folder).mkdir(parents=True)
            for file in files:
                shutil.copyfile(file, part / published.folder / file.name)
    return folder


def search(published: torchvision.Published, place: Path) -> tuple[Path, ...] | None:
    """The files in a folder or in one below it."""
    folders = [place, *sorted(path for path in place.rglob("*") if path.is_dir())]
    return next((found for folder in folders if (found := torchvision.locate(published, folder))), None)


@contextmanager
def unpacked(archive: str, path: Path) -> Iterator[Path]:
    """A folder with what an archive holds; a folder as it is, unless it holds the archive of that name."""
    if path.is_dir():
        path = path / archive if archive and (path / archive).is_file() else path
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(dir=cache.root()) as temporary:
        extract(path, Path(temporary))
        yield Path(temporary)


def extract(path: Path, folder: Path) -> None:
    """Unpack a tar or zip archive. Raises ConfigError."""
    try:
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                check_members(path, tar.getnames())
                tar.extractall(folder, filter="data")
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_members(path, archive.namelist())
                archive.extractall(folder)
        else:
            raise ConfigError(f"--from {path}: neither a folder nor a tar or zip archive")
    except tarfile.FilterError as error:
        raise ConfigError(f"{path}: refused, {error}") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError) as error:
        raise ConfigError(f"{path}: the archive is damaged or not whole ({error})") from error


def check_members(path: Path, names: list[str]) -> None:
    """Raises ConfigError for a member that would land outside the folder it is unpacked to."""
    for name in names:
        member = PurePosixPath(name.replace("\\", "/"))
        if member.is_absolute() or ".." in member.parts or ":" in member.parts[:1]:
            raise ConfigError(f"{path}: refused, its member {name!r} points outside")
