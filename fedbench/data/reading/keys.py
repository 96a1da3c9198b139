"""The usual keys of items and columns of tables, and how a key is present among them."""

from collections.abc import Sequence

from fedbench.errors import ConfigError, nearest

SAMPLE_KEYS = ("image", "img", "pixel_values", "input_ids", "features", "x", "sample", "input", "inputs", "data")
TARGETS = ("label", "labels", "target", "targets", "class", "y", "fine_label")
DOMAIN_KEYS = (
    "domain",
    "user",
    "user_id",
    "client",
    "client_id",
    "writer",
    "writer_id",
    "speaker",
    "speaker_id",
    "person",
)
"""Usual keys in items that are dicts."""


def find_key(
    what: str,
    name: str | None,
    usual: Sequence[str],
    keys: Sequence[str],
    where: str,
    hint: str = "",
    noun: str = "key",
) -> str | None:
    """The key of an item's sample, label or user, if there is one. Raises ConfigError."""
    if name:
        if name not in keys:
            raise ConfigError(f"data.{what} = {name!r}: {where} has no such {noun}; {nearest(name, keys)}")
        return name
    present = [key for key in usual if key in keys]
    if len(present) > 1:
        named = " and ".join(present)
        raise ConfigError(f"{where}: {named} could be the {what}: set data.{what} to one of them{hint}")
    return present[0] if present else None


def key_of(
    what: str,
    name: str | None,
    usual: Sequence[str],
    keys: Sequence[str],
    where: str,
    hint: str = "",
    noun: str = "key",
) -> str:
    """The key of what every item must have. Raises ConfigError."""
    key = find_key(what, name, usual, keys, where, hint, noun)
    if key is None:
        raise ConfigError(
            f"{where}: which {noun} holds the {what}? Set data.{what} to one of {', '.join(map(str, keys))}"
            f"{hint if what == 'sample' else ''}"
        )
    return key
