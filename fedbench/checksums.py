"""Checksums of files, kept in lists: what has changed since it was written is noticed when it is read.

A checksum is the CRC-32 of a file in hexadecimal and the number of its bytes, `1f3a9c02-5120`. JSON files hold the list
of other files under `crc32`, and in it their own name, for all that stands beside it; a YAML file ends with its own. A
file without a checksum, made by hand, is read as it is.
"""

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

KEY = "crc32"
"""The key of the list. CRC-32 takes half a second per GB, a tenth of SHA-256."""
BLOCK = 1 << 20
"""Bytes that are read at once."""
LAST_LINE = f"# {KEY}: "
CHANGED = "changed since it was written"


def checksum(path: Path, size: int | None = None) -> str:
    """The checksum of a file, or of its first bytes. Raises OSError."""
    left, crc = path.stat().st_size if size is None else size, 0
    covered = left
    with path.open("rb", buffering=0) as file:
        while left and (block := file.read(min(BLOCK, left))):
            crc, left = zlib.crc32(block, crc), left - len(block)
    return f"{crc:08x}-{covered - left}"


def checksum_of(content: bytes) -> str:
    """The checksum of a file with this content."""
    return f"{zlib.crc32(content):08x}-{len(content)}"


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The checksums of those of the files that exist."""
    return {name: checksum(folder / name) for name in names if (folder / name).exists()}


def change_of(path: Path, known: str, grows: bool = False) -> str | None:
    """What is wrong with a file that had this checksum; None if nothing is. grows: lines may have been added since."""
    if not path.is_file():
        return "no file" if os.path.lexists(path) else "missing"
    size, now = int(known.rpartition("-")[2]), path.stat().st_size
    if now < size:
        return f"cut from {size} to {now} bytes"
    if (now > size and not grows) or checksum(path, size) != known:
        return CHANGED
    return None


def changes(folder: Path, known: Mapping[str, str], grow: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """The files of a list that are not as they were, and what is wrong with them."""
    for name, before in known.items():
        if why := change_of(folder / name, before, name in grow):
            yield name, why


def with_own_checksum(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A JSON object with its own checksum, under the name of its file in its list."""
    others = {file: known for file, known in value.get(KEY, {}).items() if file != name}
    plain = {**value, KEY: others}
    return {**plain, KEY: {**others, name: checksum_of(json.dumps(plain).encode())}}


def is_changed(value: Mapping[str, Any], name: str) -> bool:
    """Whether a JSON object with its own checksum has changed since it was written."""
    listed = value.get(KEY)
    return isinstance(listed, dict) and name in listed and with_own_checksum(value, name)[KEY] != listed


def with_checksum(text: str) -> str:
    """A text with its checksum in a last line, which is a comment."""
    return f"{text}{LAST_LINE}{checksum_of(text.encode())}\n"


def is_text_changed(text: str, has_checksum: bool = False) -> bool:
    """Whether a text with its checksum in the last line has changed. has_checksum: whether it must have one."""
    before, marked, known = text.rpartition(LAST_LINE)
    return has_checksum if not marked else checksum_of(before.encode()) != known.rstrip("\n")


def others_in(value: Mapping[str, Any], name: str) -> dict[str, str]:
    """The checksums of other files in the list of a JSON object."""
    listed = value.get(KEY) or {}
    return {file: known for file, known in listed.items() if file != name} if isinstance(listed, dict) else {}
