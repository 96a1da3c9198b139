"""Decoded once per machine; a half-written set is never read."""

import multiprocessing
import os
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset, cache
from fedbench.data.cache import Block, Content, Source
from fedbench.errors import ConfigError


def source(reads: list[int], fail: bool = False, side: int = 2, **options) -> Source:
    """Six training images and two test images; appends to `reads` whenever it is read."""

    def blocks():
        yield Block(np.full((6, 1, side, side), 51, np.uint8), np.arange(6) % 3)
        if fail:
            raise ConfigError("row 6 is damaged")
        yield Block(np.full((2, 1, side, side), 255, np.uint8), np.array([0, 1]))

    def read() -> Content:
        reads.append(1)
        return Content(6, 2, blocks())

    return Source("toy", read, options=options)


def test_read_once_then_from_the_cache():
    reads: list[int] = []
    folders = {cache.prepare(source(reads)) for _ in range(3)}
    assert len(folders) == 1
    assert len(reads) == 1


def test_statistics_come_from_the_train_part_and_a_constant_channel_keeps_its_scale():
    dataset = Dataset.open(cache.prepare(source([])))
    assert dataset.mean == pytest.approx([0.2])
    assert dataset.std == (1.0,)
    assert dataset.classes == 3


def test_one_part_is_enough_where_the_source_says_so():
    block = Block(np.zeros((6, 1, 2, 2), np.uint8), np.arange(6) % 3)
    dataset = Dataset.open(cache.prepare(Source("one", lambda: Content(6, 0, [block], one_part=True))))
    assert (dataset.train_rows, dataset.test_rows, dataset.one_part) == (6, 0, True)
    with pytest.raises(ConfigError, match="6 training and 0 test samples; both are needed: bring a test part, or data"):
        cache.prepare(Source("half", lambda: Content(6, 0, [block])))


def test_other_options_are_another_set():
    assert cache.prepare(source([], size=1)) != cache.prepare(source([], size=2))


def test_a_changed_file_is_decoded_again(tmp_path: Path):
    file = tmp_path / "data.bin"
    file.write_bytes(b"1")
    before = Source("toy", source([]).read, (file,)).key()
    file.write_bytes(b"12")
    assert Source("toy", source([]).read, (file,)).key() != before


def test_a_failure_leaves_nothing_behind(cache_folder: Path):
    with pytest.raises(ConfigError, match="row 6 is damaged"):
        cache.prepare(source([], fail=True))
    assert [path.suffix for path in (cache_folder / "decoded").iterdir()] == [".lock"]


def test_what_a_killed_process_left_is_not_read():
    folder = cache.prepare(source([]))
    folder.rename(folder.with_name(folder.name + ".part"))
    reads: list[int] = []
    assert cache.prepare(source(reads)) == folder
    assert reads == [1]
    assert not folder.with_name(folder.name + ".part").exists()


@pytest.mark.parametrize("name", ["samples.npy", "targets.npy", "meta.json"])
def test_a_cut_off_file_is_made_again(name: str):
    file = cache.prepare(source([])) / name
    file.write_bytes(file.read_bytes()[:-9])
    reads: list[int] = []
    assert Dataset.open(cache.prepare(source(reads))).labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert reads == [1]


def test_opening_a_damaged_folder_says_what_to_do():
    folder = cache.prepare(source([]))
    (folder / "targets.npy").unlink()
    with pytest.raises(ConfigError, match=r"damaged data set .* delete it"):
        Dataset.open(folder)


@pytest.mark.parametrize("name", ["samples.npy", "targets.npy", "groups.npy", "meta.json"])
@pytest.mark.parametrize("place", [-1, 70, 130])
def test_a_changed_byte_is_noticed_and_mended(name: str, place: int, caplog: pytest.LogCaptureFixture):
    groups = {"groups": np.arange(8)}
    made = Source("toy", lambda: replace(source([]).read(), beside=lambda: groups))
    folder = cache.prepare(made)
    assert cache.is_intact(folder)
    file = folder / name
    whole = bytearray(file.read_bytes())
    changed = whole.copy()
    changed[place] ^= 1
    file.write_bytes(changed)
    assert not cache.is_intact(folder)
    with pytest.raises(ConfigError, match=rf"{folder}: damaged data set \({name}: .*\); delete it and start again"):
        Dataset.open(folder)
    assert cache.prepare(made) == folder
    assert file.read_bytes() == whole
    assert caplog.messages[0] == f"{folder}: damaged, decoding it again"


@pytest.mark.parametrize("kind", ["file", "link to itself"])
def test_what_stands_in_the_place_of_the_folder_goes(kind: str):
    folder = cache.prepare(source([]))
    shutil.rmtree(folder)
    folder.write_text("") if kind == "file" else folder.symlink_to(folder)
    assert Dataset.open(cache.prepare(source([]))).labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_processes_of_a_machine_read_the_files_once_an_hour(monkeypatch: pytest.MonkeyPatch):
    folder, read = cache.prepare(source([])), []
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
    folder = cache.prepare(domains)
    dataset = Dataset.open(folder)
    assert (dataset.domains.tolist(), dataset.domain_names) == ([0, 1, 1, 0], ("a", "b"))
    assert dataset.domains.dtype == np.int64
    assert cache.is_intact(folder)
    np.save(folder / "domains.npy", np.array([0, 1, 1, 1]))
    assert not cache.is_intact(folder)
    (folder / "domains.npy").unlink()
    with pytest.raises(ConfigError, match=r"damaged data set \(.*domains.npy.*\); delete it"):
        Dataset.open(folder)


@pytest.mark.parametrize(
    ("block", "line"),
    [
        (
            Block(np.zeros((2, 1, 2, 3), np.uint8), np.zeros(2)),
            r"shape \[1, 2, 3\] and type uint8 follow .*\[1, 2, 2\]",
        ),
        (Block(np.zeros((2, 1, 2, 2)), np.zeros(2)), "type float64 follow samples of shape .* and type uint8"),
        (Block(np.zeros((2, 1, 2, 2), np.uint8), np.zeros(3)), "2 samples have 3 targets"),
        (Block(np.zeros((2, 1, 2, 2), np.uint8), np.zeros(2), np.zeros(1)), "2 samples have 1 domains"),
        (Block(np.zeros((2, 1, 2, 2), np.uint8), np.zeros(2), np.zeros(2)), "some samples have a domain"),
    ],
)
def test_samples_unlike_the_first_or_without_a_target_each_are_refused(block, line, cache_folder):
    first = Block(np.zeros((4, 1, 2, 2), np.uint8), np.arange(4) % 2)
    with pytest.raises(ConfigError, match=line):
        cache.prepare(Source("toy", lambda: Content(4, 2, [first, block])))
    assert [path.suffix for path in (cache_folder / "decoded").iterdir()] == [".lock"]


def test_a_set_larger_than_memory_is_mapped_and_read_where_it_is_touched():
    folder, side = cache.prepare(source([], side=8)), 8
    rows = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // side**2
    with (folder / "samples.npy").open("wb") as file:
        cache.write_header(file, np.dtype(np.uint8), (rows, 1, side, side))
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
            cache.prepare(source([], side=100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.suffix for path in (cache_folder / "decoded").iterdir()] == [".lock"]


def test_an_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot be written .* set FEDBENCH_CACHE to another folder"):
        cache.prepare(source([]))


def test_a_set_without_test_images_is_refused():
    with pytest.raises(ConfigError, match="6 training and 0 test samples"):
        cache.prepare(Source("toy", lambda: Content(6, 0, [])))


def test_processes_that_ask_at_once_decode_once(tmp_path: Path):
    forks, log = multiprocessing.get_context("fork"), tmp_path / "log"
    start = forks.Barrier(4)

    def ask() -> None:
        found = source([], side=200)
        start.wait()
        with log.open("a") as file:
            decoded: list[tuple] = []
            folder = cache.prepare(found, lambda *step: decoded.append(step))
            file.write(f"{folder} {len(decoded)}\n")

    running = [forks.Process(target=ask) for _ in range(4)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    folders, steps = zip(*(line.split() for line in log.read_text().splitlines()), strict=True)
    assert len(set(folders)) == 1
    assert sorted(steps) == ["0", "0", "0", "2"], "exactly one of them decodes"


def test_progress_counts_to_the_end():
    seen: list[tuple[str, int, int]] = []
    Dataset.load(Config().data, lambda *step: seen.append(step))
    assert seen[-1] == ("decoding digits", 1797, 1797)
