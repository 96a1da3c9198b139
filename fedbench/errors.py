"""The one exception type for a user's mistakes."""

import difflib
from collections.abc import Iterable


class ConfigError(Exception):
    """A mistake of the user, worded for the reader: what, where, what is legal, what to do.

    One line, also where it tells what somebody else's exception said.
    """

    def __str__(self) -> str:
        return " ".join(filter(None, map(str.strip, super().__str__().splitlines())))


def first_line(error: BaseException) -> str:
    """What somebody else's exception says first, or its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """A sentence that lists the known names closest to `name`, or all of them when none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
