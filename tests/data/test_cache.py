"""Decoded once per machine; a half-written set is never read."""

import os
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedbench.data import Dataset, cache
from fedbench.data.cache import Block, Content, Source
from fedbench.data.decoding import prepare, write_header
from fedbench.errors import ConfigError
from tests.data.conftest import toy_source as source


def test_read_once_then_from_the_cache():
    reads: list[int] = []
    folders = {prepare(source(reads)) for _ in range(3)}
    assert len(folders) == 1
    assert len(reads) == 1


def test_other_options_are_another_set():
    assert prepare(source([], size=1)) != prepare(source([], size=2))


def test_a_changed_file_is_decoded_again(tmp_path: Path):
    file = tmp_path / "data.bin"
    file.write_bytes(b"1")
    before = Source("toy", source([]).read, (file,)).key()
    file.write_bytes(b"12")
    assert Source("toy", source([]).read, (file,)).key() != before


def test_a_failure_leaves_nothing_behind(cache_folder: Path):
    with pytest.raises(ConfigError, match="row 6 is damaged"):
        prepare(source([], fail=True))
    assert [path.suffix for path in (cache_folder / "decoded").iterdir()] == [".lock"]


def test_what_a_killed_process_left_is_not_read():
    folder = prepare(source([]))
    folder.rename(folder.with_name(folder.name + ".part"))
    reads: list[int] = []
    assert prepare(source(reads)) == folder
    assert reads == [1]
    assert not folder.with_name(folder.name + ".part").exists()


@pytest.mark.parametrize("name", ["samples.npy", "targets.npy", "groups.npy", "meta.json"])
@pytest.mark.parametrize("place", [-1, 70, 130, None])
def test_a_changed_byte_or_a_cut_off_end_is_noticed_and_mended(name: str, place: int | None, caplog):
    groups = {"groups": np.arange(8)}
    made = Source("toy", lambda: replace(source([]).read(), beside=lambda: groups))
    folder = prepare(made)
    assert cache.is_intact(folder)
    file = folder / name
    whole = bytearray(file.read_bytes())
    changed = whole.copy()
    if place is None:
        del changed[-9:]
    else:
        changed[place] ^= 1
    file.write_bytes(changed)
    assert not cache.is_intact(folder)
    with pytest.raises(ConfigError, match=rf"{folder}: damaged data set \({name}: .*\); delete it and start again"):
        Dataset.open(folder)
    assert prepare(made) == folder
    assert file.read_bytes() == whole
    assert caplog.messages[0] == f"{folder}: damaged, decoding it again"


@pytest.mark.parametrize("kind", ["file", "link to itself"])
def test_what_stands_in_the_place_of_the_folder_goes(kind: str):
    folder = prepare(source([]))
    shutil.rmtree(folder)
    folder.write_text("") if kind == "file" else folder.symlink_to(folder)
    assert Dataset.open(prepare(source([]))).labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_processes_of_a_machine_read_the_files_once_an_hour(monkeypatch: pytest.MonkeyPatch):
    folder, read = prepare(source([])), []
    Dataset.open(folder)
    monkeypatch.setattr(cache, "changes", lambda folder, known: read.extend(known) or iter(()))
    Dataset.open(folder)
    Dataset.open(folder)
    assert read == []
    monkeypatch.setattr(cache, "CHECKED_FOR", 0)
    Dataset.open(folder)
    assert read == ["samples.npy", "targets.npy", "equal.npy"]
    monkeypatch.setattr(cache, "CHECKED_FOR", 3600)
    (folder / "targets.npy").touch()
    Dataset.open(folder)
    assert len(read) == 6


def test_domains_are_kept_and_checked():
    blocks = [Block(np.zeros((4, 1, 2, 2), np.uint8), np.arange(4) % 2, np.array([0, 1, 1, 0]))]
    domains = Source("toy", lambda: Content(3, 1, blocks, domain_names=("a", "b")))
    folder = prepare(domains)
    dataset = Dataset.open(folder)
    assert (dataset.domains.tolist(), dataset.domain_names) == ([0, 1, 1, 0], ("a", "b"))
    assert dataset.domains.dtype == np.int64
    assert cache.is_intact(folder)
    np.save(folder / "domains.npy", np.array([0, 1, 1, 1]))
    assert not cache.is_intact(folder)
    (folder / "domains.npy").unlink()
    with pytest.raises(ConfigError, match=r"damaged data set \(.*domains.npy.*\); delete it"):
        Dataset.open(folder)


def test_a_set_larger_than_memory_is_mapped_and_read_where_it_is_touched():
    folder, side = prepare(source([], side=8)), 8
    rows = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // side**2
    with (folder / "samples.npy").open("wb") as file:
        write_header(file, np.dtype(np.uint8), (rows, 1, side, side))
        file.truncate(file.tell() + rows * side**2)  # a hole: it takes no room on the disk
    assert cache.mmap_mode(folder / "samples.npy") == "r"
    images = np.load(folder / "samples.npy", mmap_mode=cache.mmap_mode(folder / "samples.npy"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert images[:: rows // 50].sum() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kB"


def test_a_full_disk_is_one_line_and_leaves_nothing(cache_folder: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(ConfigError, match=r"cannot be written \(File too large\); set FEDBENCH_CACHE"):
            prepare(source([], side=100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.suffix for path in (cache_folder / "decoded").iterdir()] == [".lock"]


def test_an_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot be written .* set FEDBENCH_CACHE to another folder"):
        prepare(source([]))
