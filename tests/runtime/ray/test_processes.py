"""The processes of a Ray of our own are found by their mark, and end with it."""

import os
import signal
import subprocess
import sys

import pytest

from fedbench.runtime.ray import processes
from fedbench.runtime.ray.processes import MARK, end_processes, marked_processes, own_handlers, signals_ignored

STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
)


@pytest.fixture
def own_handler():
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    yield heard
    signal.signal(signal.SIGTERM, before)


def test_processes_with_the_mark_are_ended_and_no_others(monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.1)
    started = [
        subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, env={**os.environ, MARK: mark})
        for mark in ("mine", "mine-too")
    ]
    try:
        for process in started:
            process.stdout.readline()
        mine, other = started
        assert marked_processes("mine") == [mine.pid]
        end_processes("mine")
        assert mine.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()


def test_handlers_stay_though_ray_sets_its_own(own_handler):
    with own_handlers():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    os.kill(os.getpid(), signal.SIGTERM)
    assert own_handler == [signal.SIGTERM]


def test_a_signal_during_the_start_is_answered_by_the_own_handler(own_handler):
    with pytest.raises(SystemExit), own_handlers():
        sys.exit(signal.SIGTERM)  # as Ray's handler does
    assert own_handler == [signal.SIGTERM]


def test_what_cleans_up_is_not_interrupted_a_second_time(own_handler):
    with signals_ignored():
        os.kill(os.getpid(), signal.SIGTERM)
    assert own_handler == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert own_handler == [signal.SIGTERM]
