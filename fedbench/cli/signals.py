"""Signals that end a command: it cleans up as after Ctrl-C, instead of leaving its files and processes behind."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""From `kill`, from a scheduler, or because the terminal was closed."""


class Interruption:
    """A handler of signals that interrupts what is under way. number: of the last signal; SIGINT comes from Python.

    The number is kept here because libraries raise a KeyboardInterrupt of their own instead of this one.
    """

    number = signal.SIGINT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = signal.Signals(number)
        raise KeyboardInterrupt

    @property
    def line(self) -> str:
        return "interrupted" if self.number == signal.SIGINT else f"ended by {self.number.name}"


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Have signals that would end this process interrupt the block; ignored ones, as with nohup, stay ignored.

    Within such a block it is the outer one's.
    """
    known = [signal.getsignal(number) for number in ENDING]
    outer = next((handler for handler in known if isinstance(handler, Interruption)), None)
    if outer or threading.current_thread() is not threading.main_thread():
        yield outer or Interruption()
        return
    handler = Interruption()
    changed = [number for number, handler in zip(ENDING, known, strict=True) if handler is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, handler)
    try:
        yield handler
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
