"""Unpacking tar and zip archives without letting them write where they should not."""

import errno
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import TypeVar

from fedbench.data.cache import OnProgress
from fedbench.errors import ConfigError, first_line

T = TypeVar("T")
IsNeeded = Callable[[str], bool]
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)
"""Errors of the disk that is written to, not of the archive."""


def is_archive(path: Path) -> bool:
    """Whether it can be unpacked; a single packed file (NAME.gz) is no archive."""
    try:
        return path.is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))
    except Exception:  # of damaged files: the two modules raise whatever comes
        return False


def extract(path: Path, folder: Path, is_needed: IsNeeded, progress: OnProgress | None = None) -> None:
    """Unpack the wanted files of a tar or zip archive to a new folder. Raises ConfigError, OSError for a full disk.

    Nothing is unpacked of an archive that has a member outside, or one that is neither file nor folder.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                check_members(path, (member.filename for member in members))
                for member in with_progress(
                    path, [m for m in members if not m.is_dir() and is_needed(m.filename)], progress
                ):
                    archive.extract(member, folder)
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                entries = tar.getmembers()
                check_members(path, (entry.name for entry in entries))
                for entry in entries:
                    if not (entry.isfile() or entry.isdir()):  # no data set needs links, which may point anywhere
                        raise ConfigError(f"{path}: refused, its member {entry.name!r} is neither a file nor a folder")
                for entry in with_progress(path, [e for e in entries if e.isfile() and is_needed(e.name)], progress):
                    tar.extract(entry, folder, filter="data")
        else:
            raise ConfigError(f"{path}: neither a folder nor a tar or zip archive")
    except ConfigError:
        raise
    except Exception as error:  # damaged, encrypted, packed in an unknown way: the two modules raise whatever comes
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        raise ConfigError(f"{path}: the archive is damaged or incomplete ({first_line(error)})") from error


def with_progress(path: Path, members: list[T], progress: OnProgress | None) -> Iterable[T]:
    for number, member in enumerate(members, 1):
        yield member
        if progress:
            progress(f"unpacking {path.name}", number, len(members))


def check_members(path: Path, names: Iterable[str]) -> None:
    """Raises ConfigError for a member that would land outside the folder it is unpacked to."""
    for name in names:
        member = PurePosixPath(name.replace("\\", "/"))
        if member.is_absolute() or ".." in member.parts or ":" in "".join(member.parts[:1]):
            raise ConfigError(f"{path}: refused, its member {name!r} points outside")


def move_or_copy(path: Path, target: Path, is_needed: IsNeeded, move: bool) -> None:
    """Move or copy a file, or the wanted files of a folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if move:
        path.rename(target)
    elif path.is_file():
        shutil.copyfile(path, target)
    else:
        for folder, _, names in os.walk(path):
            inside = Path(folder).relative_to(path.parent)
            kept = [name for name in names if is_needed((inside / name).as_posix())]
            (target.parent / inside).mkdir(parents=True, exist_ok=True)
            for name in kept:
                shutil.copyfile(Path(folder, name), target.parent / inside / name)
