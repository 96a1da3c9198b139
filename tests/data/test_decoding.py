"""Samples are decoded once, checked against the first ones, and measured on the training part."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.cache import Block, Content, Source
from fedbench.data.decoding import prepare
from fedbench.errors import ConfigError
from tests.data.conftest import toy_source as source


def test_statistics_come_from_the_train_part_and_a_constant_channel_keeps_its_scale():
    dataset = Dataset.open(prepare(source([])))
    assert dataset.mean == pytest.approx([0.2])
    assert dataset.std == (1.0,)
    assert dataset.classes == 3


def test_one_part_is_enough_where_the_source_says_so():
    block = Block(np.zeros((6, 1, 2, 2), np.uint8), np.arange(6) % 3)
    dataset = Dataset.open(prepare(Source("one", lambda: Content(6, 0, [block], one_part=True))))
    assert (dataset.train_rows, dataset.test_rows, dataset.one_part) == (6, 0, True)
    with pytest.raises(ConfigError, match="6 training and 0 test samples; both are needed: bring a test part, or data"):
        prepare(Source("half", lambda: Content(6, 0, [block])))


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
        prepare(Source("toy", lambda: Content(4, 2, [first, block])))
    assert [path.suffix for path in (cache_folder / "decoded").iterdir()] == [".lock"]


def test_processes_that_ask_at_once_decode_once(tmp_path: Path):
    forks, log = multiprocessing.get_context("fork"), tmp_path / "log"
    start = forks.Barrier(4)

    def ask() -> None:
        found = source([], side=200)
        start.wait()
        with log.open("a") as file:
            decoded: list[tuple] = []
            folder = prepare(found, lambda *step: decoded.append(step))
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
