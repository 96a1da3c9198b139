"""Published files that a user already has, taken into the cache; and what is known of those that are there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fedbench import cache_folder
from fedbench.config import DataConfig
from fedbench.data import archives, cache
from fedbench.data.cache import OnProgress
from fedbench.data.reading.published import (
    STAMP,
    PublishedSet,
    check_pickles,
    files_with_wrong_checksum,
    find_at,
    find_below,
    folder_in_cache,
    folders_below,
    missing_text,
    take_files,
)
from fedbench.data.sources import published_names, published_of
from fedbench.errors import ConfigError


def import_files(name: str, path: Path, progress: OnProgress | None = None) -> Path:
    """Copy the published files of a set into the cache; returns their folder.

    path: a folder with the files, a tar or zip archive, or a folder of such archives. Raises ConfigError when files are
    missing, or an archive is damaged or has paths that point outside; what was in the cache before then stays.
    """
    published = published_of(name)
    if published is None:
        raise ConfigError(f"--from is for {', '.join(published_names())}; give {name} its path instead")
    if not path.exists():
        raise ConfigError(f"--from {path}: no such file or folder")
    folder = folder_in_cache(name)
    with (
        cache.hold_lock(folder.with_name(f"{name}.lock")),
        files_to_import(published, path, progress) as (unpacked, ours),
    ):
        source = find_below(published, unpacked)
        if source is None:
            raise ConfigError(f"--from {path}: {missing_text(published, list(folders_below(unpacked)))}")
        if published.pickled:
            check_pickles(published, source)
        with cache.refuse_disk_errors(folder.parent), cache.replace_folder(folder) as part:
            take_files(published, source, part, move=ours)
            (part / STAMP).write_text("whole\n")
    return folder


@contextmanager
def files_to_import(published: PublishedSet, path: Path, progress: OnProgress | None) -> Iterator[tuple[Path, bool]]:
    """A folder in which to look for the set, and whether it is a copy that may be taken apart."""
    folder = path.parent if path.is_file() and published.has(path.name) else path
    packed = archives_to_unpack(published, folder)
    if not packed:
        yield folder, False
        return
    with cache.refuse_disk_errors(cache_folder.root()):
        temporary = TemporaryDirectory(prefix="import-", dir=cache_folder.root() / "files", ignore_cleanup_errors=True)
    with temporary as name:
        with cache.refuse_disk_errors(cache_folder.root()):
            for archive in packed:
                archives.extract(archive, Path(name), published.is_needed, progress)
            for file in loose_files(published, path):
                shutil.copyfile(file, Path(name, file.name))
        yield Path(name), True


def archives_to_unpack(published: PublishedSet, folder: Path) -> list[Path]:
    """What to unpack: nothing where the set is there as it is; of a folder's archives the published ones, else all."""
    if folder.is_file():
        return [folder]
    if find_below(published, folder) is not None:
        return []
    packed = [p for p in sorted(folder.iterdir()) if not published.has(p.name) and archives.is_archive(p)]
    names = {download.name for download in published.downloads()}
    return [path for path in packed if path.name in names] or packed


def loose_files(published: PublishedSet, folder: Path) -> list[Path]:
    """Files of the set that lie beside its archives."""
    if not folder.is_dir():
        return []
    patterns = [*published.extras, *published.names]
    return sorted({p for pattern in patterns for p in folder.glob(Path(pattern).name) if p.is_file()})


def compare_checksums(config: DataConfig) -> tuple[bool, str]:
    """Whether the published files are as published, or at least nothing says otherwise; and a few words on it."""
    published = published_of(config.name)
    if published is None or not published.checksums():
        return True, "no published checksums to compare with"
    folder = find_at(published, config.root.expanduser().absolute()) if config.root else folder_in_cache(config.name)
    changed = files_with_wrong_checksum(published, folder) if folder else []
    if changed:
        return False, f"MD5 is not the published one: {', '.join(path.name for path in changed)}"
    return True, "MD5 as published" if folder else "no published checksums to compare with"
