"""What was read: every choice that reading made, and whether it was given or the only one that makes sense.

A choice between two plausible readings that give other numbers is not made: it is asked (`open_decision`).
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any, Literal

from fedbench.errors import open_decision

__all__ = ["Decision", "open_decision"]

About = Literal["parts", "samples", "targets", "clients", "files"]


@dataclass(frozen=True)
class Decision:
    """One choice of a reader. about: what it decides on; said: the choice in words, `column died is the target`.

    how: given by a key or by the data's own declaration, or certain. key, value: what sets it in a configuration
    (`data.label`, `died`); no key if nothing can.
    """

    about: About
    said: str
    how: Literal["given", "certain"] = "certain"
    key: str = ""
    value: Any = None

    def as_json(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, known: Iterable[Any]) -> "Decision":
        return cls(*known)
