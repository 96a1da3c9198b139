"""The parts train, val and test of a set: by the names of folders or splits, and where one is missing."""

from collections.abc import Iterable
from typing import Any, TypeVar

from fedbench.errors import ConfigError
from fedbench.user_code.parts import NAMES

T = TypeVar("T")
VAL_IS_TEST = "the validation part holds the test samples"


def part_names(names: Iterable[str]) -> dict[str, str]:
    """The names of the three parts among these, in any case."""
    lower = {name.lower(): name for name in names}
    parts = {part: [lower[name] for name in known if name in lower] for part, known in NAMES.items()}
    return {part: known[0] for part, known in parts.items() if known}


def with_test_part(parts: dict[str, T], test_part: str | None, absent: str) -> tuple[dict[str, T], list[str]]:
    """The parts, of which val becomes test if this is wanted or there is no test, and a remark on that.

    test_part: what is wanted, if anything. absent: what to say if it is not there. Raises ConfigError.
    """
    if test_part and test_part not in parts:
        raise ConfigError(f"data.test_part = {test_part}: {absent}")
    if "val" in parts and (test_part == "val" or "test" not in parts):
        return {"train": parts["train"], "test": parts["val"]}, [VAL_IS_TEST]
    return parts, []


def is_test_row(index: Any) -> Any:
    """Whether a row, or each of several, is a test row in a set of fedbench's own without test part: every fifth is."""
    return index % 5 == 4
