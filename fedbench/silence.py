"""Loggers of other libraries that are quiet for a while."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced(name: str, level: int = logging.WARNING) -> Iterator[None]:
    """A logger says nothing below a level in a block; it is as it was afterwards."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
