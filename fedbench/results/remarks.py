"""The remarks of runs on two levels: doubts, which concern the numbers of a method, and notes, which are harmless.

The level is set where a remark is made. Records keep the texts, and those of the doubts in a list of their own.
"""

from collections.abc import Iterable, Mapping, Sequence

MOST_BESIDE_A_ROW = 5
"""Doubts that stand beside the row of a method, where clients may fail one after another."""


class Doubt(str):
    """A remark that concerns the numbers of a method. Equal to its text; any other string is a note."""

    __slots__ = ()


def as_doubts(lines: Iterable[str]) -> list[str]:
    """These lines as doubts."""
    return [Doubt(line) for line in lines]


def with_levels(lines: Iterable[str], doubts: Iterable[str]) -> list[str]:
    """Lines that were written without their level, as doubts where they are among these."""
    known = set(doubts)
    return [Doubt(line) if line in known else line for line in lines]


def doubts_in(lines: Iterable[str]) -> list[str]:
    """The texts of the doubts, each once."""
    return [str(line) for line in dict.fromkeys(lines) if isinstance(line, Doubt)]


def level_of(line: str) -> str:
    """The word for a remark's level."""
    return "warning" if isinstance(line, Doubt) else "note"


def with_label(line: str) -> str:
    """The line with its level before it, for a terminal."""
    return f"{level_of(line)}: {line}"


def beside_row(doubts: Sequence[str]) -> tuple[str, ...]:
    """The doubts that stand beside a method's row: all, or the first and how many more there are."""
    if len(doubts) <= MOST_BESIDE_A_ROW:
        return tuple(doubts)
    shown = doubts[: MOST_BESIDE_A_ROW - 1]
    return *shown, f"{len(doubts) - len(shown)} more warnings like the last one, in the report"


def footnote_numbers(doubts: Iterable[Sequence[str]]) -> dict[str, int]:
    """The numbers of the doubts of all rows, from 1 in the order of rows; equal ones share a number."""
    return {line: number for number, line in enumerate(dict.fromkeys(line for lines in doubts for line in lines), 1)}


def with_methods(lines: Mapping[str, Sequence[str]]) -> list[str]:
    """Every remark once, with the methods that it concerns, if these are not all; doubts first. lines: by method."""
    methods_of: dict[str, list[str]] = {}
    for method, texts in lines.items():
        for line in dict.fromkeys(texts):
            methods_of.setdefault(line, []).append(method)
    named = [_with_names(line, methods, len(methods) == len(lines) > 1) for line, methods in methods_of.items()]
    return sorted(named, key=lambda line: not isinstance(line, Doubt))


def _with_names(line: str, methods: Sequence[str], are_all: bool) -> str:
    names = f"{', '.join(methods)}: "
    return line if are_all or line.startswith(names) else type(line)(names + line)
