"""The remarks of runs on two levels: doubts, which concern the numbers of a method, and notes, which are harmless."""

import re
from collections.abc import Iterable, Mapping, Sequence

DOUBTS = re.compile(
    r"so this is|is fedavg|equals? |without effect|no effect|is not reached|are not numbers|nothing was trained"
    r"|are missing|was left out|treated alike|no strength|too few"
)
"""Words of remarks that concern the numbers: a method that is another one, a value without effect, lost scores."""
NO_DOUBT = re.compile(r"^train\.(engine|width|threads) ")
"""Beginnings of remarks on values that decide the speed alone."""


def is_doubt(line: str) -> bool:
    """Whether a remark concerns the numbers of a method."""
    return bool(DOUBTS.search(line)) and not NO_DOUBT.match(line)


def doubts_in(lines: Iterable[str]) -> tuple[str, ...]:
    """The remarks that stand beside a method's row."""
    return tuple(dict.fromkeys(filter(is_doubt, lines)))


def numbered(doubts: Iterable[Sequence[str]]) -> dict[str, int]:
    """The numbers of the doubts of all rows, from 1 in the order of rows; equal ones share a number."""
    return {line: number for number, line in enumerate(dict.fromkeys(line for own in doubts for line in own), 1)}


def with_methods(lines: Mapping[str, Sequence[str]]) -> list[str]:
    """Every remark once, with the methods that it concerns, if these are not all. lines: by method."""
    found: dict[str, list[str]] = {}
    for method, own in lines.items():
        for line in dict.fromkeys(own):
            found.setdefault(line, []).append(method)
    return [
        line if len(methods) == len(lines) > 1 else f"{', '.join(methods)}: {line}" for line, methods in found.items()
    ]
