"""Silences loggers of other libraries temporarily."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silence_logger(name: str, level: int = logging.WARNING) -> Iterator[None]:
    """Silences a logger below a level within the block."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
