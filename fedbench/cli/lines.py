"""What takes long says so on stderr before it begins, while a command runs."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("fedbench")


class Lines(logging.Handler):
    """A line for each message, above a progress bar where there is one; the same remark once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.levelno > logging.INFO or line not in self.said:
            print(line, file=sys.stderr, flush=True)
        self.said.add(line)


@contextmanager
def lines() -> Iterator[None]:
    """fedbench's own log is written to stderr in a block; a block inside another one changes nothing."""
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


def loading(what: str = "checking what is asked") -> None:
    """Says what comes before the first step where PyTorch has to be loaded for it, which takes seconds."""
    if "torch" not in sys.modules:
        log.info(f"loading PyTorch, {what}")
