"""Data that a user passes as Python objects, and a name that identifies their content."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any

from fedbench.errors import ConfigError
from fedbench.import_string import AT, keep, own_object
from fedbench.user_code.forms import form_of, holds_parts, is_column, is_foreign_table
from fedbench.user_code.objects import Walk
from fedbench.user_code.parts import NO_KEYS, PARTS, ByClient, Collate, SectionKeys, parts_of, pieces_in, remedy_for

MEMORY = "memory:"
"""The beginning of the name of data that are objects."""


@dataclass
class GivenData:
    """Data as objects. They stay in their process; others know them by the copy in the cache.

    kind: arrays, columns, items, table, or the class of the data set. parts: by name, `train` and perhaps `val` and
    `test`; empty in other processes. collate: the function of the loaders of a LightningDataModule, if it has one of
    its own. by_client: whether parts come as a part for each client. loading: the size of the batches of its training
    loader, and whether their order is random. joined: as in `ObjectParts`. decided: what determines the copy, by the
    configuration. sources: what this process reads, likewise.
    """

    name: str
    kind: str
    parts: Mapping[str, Any]
    collate: Collate | None = None
    by_client: bool = False
    loading: tuple[int | None, bool] | None = None
    joined: tuple[str, ...] = ()
    decided: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, value: Any, keys: SectionKeys) -> "GivenData":
        """Data that are an object, under a name, or under that of their content if it is empty. Raises ConfigError."""
        parts, collate, loading, joined = parts_of(value, keys)
        pieces, by_client = pieces_in(parts["train"]), isinstance(parts["train"], ByClient)
        kind = form_of(pieces[0])
        return cls(
            name or f"{MEMORY}{kind}{AT}{_digest(parts, collate)}", kind, parts, collate, by_client, loading, joined
        )

    @property
    def digest(self) -> str:
        return _digest(self.parts, self.collate)

    def look_again(self) -> None:
        """Checks before a new command that the objects are still those of the name. Raises ConfigError."""
        if self.parts:
            self.sources.clear()
        if self.parts and not self.name.endswith(AT + self.digest):
            raise ConfigError(f"data {self.name}: the objects have changed since; pass them again, Config(data=...)")

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.name, self.kind, {}, None, self.by_client, self.loading, self.joined, self.decided)


def _received(name: str, *others: Any) -> GivenData:
    """The data from another process, or this process's own."""
    here = own_object(name)
    return here if isinstance(here, GivenData) else GivenData(name, *others)


def given_data(name: str) -> GivenData | None:
    """The data of a name, if this process knows them."""
    given = own_object(name) if name.startswith(MEMORY) else None
    return given if isinstance(given, GivenData) else None


def with_data_name(value: Any, keys: Mapping[str, Any], beside: SectionKeys = NO_KEYS) -> Any:
    """A data section in which objects are replaced by their name. keys: of the section. Raises ConfigError."""
    if isinstance(value, type) and hasattr(value, "train_dataloader"):
        raise ConfigError(f"data is the class {value.__name__}; pass an instance, {value.__name__}(...)")
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float | type | FunctionType):
        return value
    if isinstance(value, Mapping) and "name" in value:
        beside = SectionKeys(value.get("task", "auto"), value.get("user"))
        named = with_data_name(value["name"], keys, beside)
        return {**value, **(named if isinstance(named, dict) else {"name": named})}
    if isinstance(value, Mapping) and not _holds_data(value, keys):
        return value
    return {"name": _name_of_data(value, beside)}


def _holds_data(value: Mapping[Any, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a mapping holds parts or columns, not keys of the section."""
    if not all(isinstance(key, str) for key in value) or any(map(remedy_for, value.values())):
        return True
    train = [part for key, part in value.items() if PARTS.get(str(key).lower()) == "train"]
    if any((hasattr(part, "__iter__") or is_foreign_table(part)) and not isinstance(part, str) for part in train):
        return True
    values = [part for key, part in value.items() if key not in keys]
    return any(holds_parts(part) or (not isinstance(part, list) and is_column(part)) for part in values) or (
        len(values) > 1 and all(map(is_column, values))
    )


def _name_of_data(value: Any, keys: SectionKeys) -> str:
    given = GivenData.of("", value, keys)
    keep(given.name, given)
    return given.name


def _digest(parts: Mapping[str, Any], collate: Any) -> str:
    """Eight hexadecimal digits that identify what the objects hold in memory, and the code of data sets."""
    digest = sha256(b"" if collate is None else Walk(collate).fingerprint.encode())
    for name, part in parts.items():
        digest.update(name.encode())
        for client, piece in part.items() if isinstance(part, ByClient) else [("", part)]:
            digest.update(client.encode())
            _add_part(piece, digest)
    return digest.hexdigest()[:8]


def _add_part(part: Any, digest: Any) -> None:
    from fedbench.user_code.memory import add_memory

    if form_of(part) in ("table", "arrays", "columns", "items"):
        add_memory(part, digest)
    else:
        digest.update(Walk(part).fingerprint.encode())
