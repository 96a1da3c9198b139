"""The parts of an exchange make up its time."""

import json
import os
from dataclasses import replace

import pytest

from fedbench.runtime.exchange import Reply
from fedbench.runtime.observers.observer import EndedExchange
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.observers.timings import Stopwatch, Timings
from fedbench.tasks import load

REPLY = Reply([], 1.0, 0.5, 2.0, 3.0, os.getpid() + 1, 100.0, gpu_mb=7.0)


def test_laps_of_a_part_are_added_and_no_time_is_left_over():
    watch = Stopwatch()
    for part in ("server", "exchange", "log", "server", "log"):
        watch.lap(part)
    seconds = watch.stop([REPLY])
    assert seconds["total"] == pytest.approx(seconds["server"] + seconds["exchange"] + seconds["log"])
    assert seconds["cpu"] >= 3.0, "that of other processes counts"
    here = Stopwatch()
    here.lap("server")
    assert here.stop([replace(REPLY, process=os.getpid())])["cpu"] < 3.0


def test_a_line_has_the_slowest_host_and_the_memory_of_all(tmp_path):
    replies = [REPLY, replace(REPLY, train_seconds=1.5, busy_seconds=2.5, process=os.getpid() + 2)]
    seconds = {"server": 0.1, "exchange": 3.0, "log": 0.2, "total": 3.3, "cpu": 6.0}
    Timings(4, Recorder(tmp_path, load("classification"))).on_exchange(EndedExchange(2, replies, seconds))
    (line,) = map(json.loads, (tmp_path / "timings.jsonl").read_text().splitlines())
    assert (line["seed"], line["exchange"], line["train"], line["eval"]) == (4, 2, 1.5, 0.5)
    assert line["comm"] == 0.5
    assert line["host_busy"] == [2.0, 2.5]
    assert line["rss_mb"] > 200
    assert line["gpu_mb"] == 14
