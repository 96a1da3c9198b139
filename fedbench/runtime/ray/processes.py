"""The processes of a local Ray, told by a mark in their environment, and the signals of the process that started it.

Ray's agents outlive a Ray that is ended in its start, and its own handlers of signals end a process without a word of
ours.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "FEDBENCH_RAY"
"""Environment variable that the processes of one Ray have in common."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE, PATIENCE, POLL = 2.0, 10.0, 0.05
"""Seconds in which processes may end by themselves, then to wait for killed ones, and between two looks."""


def marked_processes(mark: str) -> list[int]:
    """The running processes of a Ray except this one, on Linux; those of other users cannot be seen."""
    variable, processes = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                processes.append(int(folder.name))
    return processes


def end_processes(mark: str) -> None:
    """Wait for the end of a Ray's processes, and kill those that do not end by themselves."""
    begun = time.monotonic()
    while (left := marked_processes(mark)) and (lasted := time.monotonic() - begun) < PATIENCE:
        for number in left if lasted > GRACE else ():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(POLL)


@contextmanager
def own_handlers() -> Iterator[None]:
    """Keep this process's handlers of signals although Ray sets its own in the block."""
    kept = {number: signal.getsignal(number) for number in ENDING} if in_main_thread() else {}
    try:
        yield
    except SystemExit:  # raised by Ray's handler
        if callable(handler := kept.get(signal.SIGTERM)):
            handler(signal.SIGTERM, None)
        raise
    finally:
        for number, handler in kept.items():
            if callable(handler):
                signal.signal(number, handler)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Finish a block even if the signal that ends the process comes again."""
    kept = {number: signal.getsignal(number) for number in ENDING} if in_main_thread() else {}
    for number in kept:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in kept.items():
            if handler is not None:  # set by C code, which Python cannot restore
                signal.signal(number, handler)


def in_main_thread() -> bool:
    """Whether this thread may set handlers of signals."""
    return threading.current_thread() is threading.main_thread()
