"""The usual keys of items and columns of tables, and how a key is present among them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.errors import ConfigError, nearest

SAMPLE_KEYS = ("image", "img", "pixel_values", "input_ids", "features", "x", "sample", "input", "inputs", "data")
TARGETS = ("label", "labels", "target", "targets", "class", "y", "fine_label")
DOMAIN_KEYS = (
    *("domain", "user", "user_id", "client", "client_id", "writer", "writer_id", "speaker", "speaker_id", "person"),
)
USUAL = {"sample": SAMPLE_KEYS, "label": TARGETS, "user": DOMAIN_KEYS}
"""Usual keys in items that are dicts."""


def is_usual(name: Any, what: str) -> bool:
    """Whether a name is usual for the sample, label or user, whatever its case: `User ID` as `user_id`."""
    return folded_name(name) in map(folded_name, USUAL[what])


def folded_name(name: Any) -> str:
    """A name without its case, blanks, hyphens and underscores."""
    return re.sub(r"[\W_]", "", str(name)).casefold()


@dataclass(frozen=True)
class NamedParts:
    """The parts of an item or of a table by name. where: what they are parts of; noun: what a part is called.

    Usual names are found in any case; as they are written they come first. hint: what else can be done about several
    candidates, or about an unknown sample.
    """

    names: Sequence[str]
    where: str
    noun: str = "key"
    hint: str = ""

    def find(self, what: str, name: str | None, usual: Sequence[str] | None = None) -> str | None:
        """The name of the sample, label or user, if there is one: the given one, or a usual one. Raises ConfigError."""
        if name:
            if name not in self.names:
                line = f"data.{what} = {name!r}: {self.where} has no such {self.noun}"
                raise ConfigError(f"{line}; {nearest(name, self.names)}")
            return name
        keys = USUAL[what] if usual is None else usual
        present = [key for key in keys if key in self.names]
        if not present:
            plain = [*map(folded_name, keys)]
            present = [name for name in self.names if folded_name(name) in plain]
        if len(present) > 1:
            named = " and ".join(present)
            raise ConfigError(f"{self.where}: {named} could be the {what}: set data.{what} to one of them{self.hint}")
        return present[0] if present else None

    def require(self, what: str, name: str | None, usual: Sequence[str] | None = None) -> str:
        """As `find`, of what every item must have."""
        if (key := self.find(what, name, usual)) is None:
            hint = self.hint if what == "sample" else ""
            line = f"{self.where}: which {self.noun} holds the {what}?"
            raise ConfigError(f"{line} Set data.{what} to one of {', '.join(map(str, self.names))}{hint}")
        return key
