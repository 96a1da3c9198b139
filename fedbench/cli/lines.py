"""Announces slow steps on stderr while a command runs; how wide lines on a terminal are."""

import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("fedbench")


class Lines(logging.Handler):
    """Prints one line per message, above any progress bar, and each remark once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.levelno > logging.INFO or line not in self.said:
            print(line, file=sys.stderr, flush=True)
        self.said.add(line)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Writes fedbench's log to stderr within the block; nested blocks change nothing."""
    if any(isinstance(handler, Lines) for handler in log.handlers):
        yield
        return
    before, handler = log.level, Lines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def loading(what: str = "checking the configuration") -> None:
    """Announces the next step if PyTorch has to be loaded for it, which takes seconds."""
    if "torch" not in sys.modules:
        log.info(f"loading PyTorch, {what}")


def terminal_width() -> int:
    """The number of columns of wrapped text."""
    return max(60, min(110, shutil.get_terminal_size((100, 24)).columns))
