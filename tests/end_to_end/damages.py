"""Damage to the files of results and of the cache, and what is said of it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.report import write_report
from fedbench.report.study import Study
from fedbench.results.events import Evaluation, WatchedEvent
from fedbench.studies.run import run
from tests.runtime.rounds import Stopped

Damage = Callable[[Path], None]
NUMBERS = ("metrics", "clients", "traces", "newcomers", "outcomes", "partition", "config", "warnings")
REMEDIES = "|".join(
    (
        "or delete .* to run it again",
        "bring the file back, or move it away and repeat the command that wrote it",
        "move it away and repeat the command",
        "decoding it again",
        "delete it and start again",
        "give the same values to continue it, or another --out",
        "give the folder of a run",
    )
)


def flip(path: Path, share: float) -> None:
    """Change a bit of a file. share: of the file, where."""
    content = bytearray(path.read_bytes())
    content[min(int(share * len(content)), len(content) - 1)] ^= 4
    path.write_bytes(content)


def change_digit(path: Path) -> None:
    """Another last digit in the middle of a text, where that is a number."""
    text = path.read_text()
    digits = [found.start() for found in re.finditer(r"\d\b", text)]
    place = digits[len(digits) // 2]
    path.write_text(f"{text[:place]}{9 - int(text[place])}{text[place + 1 :]}")


def swap_lines(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[-1], lines[-2] = lines[-2], lines[-1]
    path.write_text("".join(lines))


def replace_file(path: Path, kind: str) -> None:
    path.unlink()
    if kind == "folder":
        path.mkdir()
        (path / "inside").touch()
    elif kind == "link to itself":
        path.symlink_to(path)


def damages(path: Path, places: int = 3) -> Iterator[tuple[str, Damage]]:
    """The damages to a file by name."""
    for place in range(places):
        share = (place + 0.5) / places
        yield f"flip at {share:.0%}", lambda path, share=share: flip(path, share)
    yield "flip at the end", lambda path: flip(path, 1)
    yield "half", lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) and None
    yield "empty", lambda path: path.write_bytes(b"") and None
    if path.suffix in (".json", ".jsonl", ".yaml", ".txt"):
        yield "digit", change_digit
        if path.read_text().count("\n") > 1:
            yield "swapped lines", swap_lines
    for kind in ("missing", "folder", "link to itself"):
        yield kind, lambda path, kind=kind: replace_file(path, kind)


@dataclass
class Answer:
    """What opening results gave: their numbers, and what was said."""

    numbers: Any
    said: str
    error: BaseException | None = None

    def fault(self, right: "Answer", path: Path) -> str | None:
        """What is wrong with it for a damaged file; None for the right numbers or a good line."""
        if self.error is not None and not isinstance(self.error, ConfigError):
            return f"{type(self.error).__name__}: {self.error}"
        if self.error is None and self.numbers == right.numbers:
            return None
        line = str(self.error or self.said)
        named = path.name in line or path.parent.name in line
        if not line:
            return "other numbers without a word"
        return None if named and re.search(REMEDIES, line) else f"no remedy or file: {line}"


def read_report(folder: Path) -> Answer:
    """The numbers and remarks of a report."""
    try:
        study = Study.load(folder)
        numbers = {
            label: {name: text_of(getattr(records, name)()) for name in NUMBERS}
            for label, records in study.runs.items()
        }
        found = {"runs": numbers, "points": repr(study.plan.points()), "choices": repr(study.plan.choices)}
        return Answer(found, "\n".join(study.problems))
    except BaseException as error:
        return Answer(None, "", error)


def text_of(value: Any) -> str:
    if isinstance(value, dict):
        value = {key: text_of(own) for key, own in sorted(value.items()) if key not in ("out", "name")}
    return value.to_csv() if hasattr(value, "to_csv") else repr(value)


def repeat(config: Config, folder: Path) -> Answer:
    """The numbers after the command was repeated."""
    try:
        run(config, report=False)
    except BaseException as error:
        return Answer(None, "", error)
    return read_report(folder)


def write_page(folder: Path) -> Answer:
    """What is said if the report is written."""
    try:
        write_report(folder)
        return Answer(None, "")
    except BaseException as error:
        return Answer(None, "", error)


def interrupted(config: Config, round: int) -> None:
    """Leave a run that was ended after a round."""

    def watch(event: WatchedEvent) -> None:
        if isinstance(event, Evaluation) and event.round == round:
            raise Stopped

    try:
        run(config, watch=watch, report=False)
    except Stopped:
        return
    raise AssertionError(f"round {round} never came")


def decoded(folder: Path) -> Iterator[Path]:
    """The files of the decoded data sets in a cache."""
    yield from sorted(path for path in (folder / "decoded").glob("*/*") if path.is_file())
