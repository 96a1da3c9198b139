"""Names in a user's class that look like misspelt hooks, which nothing would ever call."""

import difflib
import inspect
from collections.abc import Collection, Iterator
from typing import Any

CLOSE = 0.85
"""How alike two names must be, from 0 to 1, for one to be a misspelling of the other."""


def misspelt_names(kind: type, base: type, known: Collection[str]) -> Iterator[tuple[type, str, str]]:
    """The class, the name, and the known name that is probably meant, of attributes that no code of the class uses.

    base: the class whose hooks are overridden; it and its bases are not looked at. Private names are taken as they are.
    """
    parts = kind.__mro__[: kind.__mro__.index(base)]
    used = {name for part in parts for value in vars(part).values() for name in _names_in(value)}
    for part in parts:
        mistakes = misspellings(vars(part).keys(), known)
        yield from ((part, name, meant) for name, meant in mistakes if name not in used)


def misspellings(names: Collection[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Public names that look like misspelt known ones, which are missing, with the one that is probably meant."""
    missing = {name.lower(): name for name in known if name not in names}
    for name in sorted({*names} - {*known}):
        if not name.startswith("_") and (close := difflib.get_close_matches(name.lower(), missing, 1, CLOSE)):
            yield name, missing[close[0]]


def _names_in(value: Any) -> Iterator[str]:
    """The names that the code of a function or property refers to, and that of functions inside it."""
    for function in (getattr(value, "__func__", value), getattr(value, "fget", None), getattr(value, "func", None)):
        codes = [function.__code__] if inspect.isfunction(function) else []
        for code in codes:
            yield from code.co_names
            codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
