"""Files of a results folder: written whole or not at all, and read although a process died while it wrote."""

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole file or leaves the old one: a temporary file beside it, flushed to disk, renamed."""
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp gives 0600, but results are there to be shared
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json_atomically(path: Path, value: Any) -> None:
    """As indented JSON, keys in their own order."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def write_parquet_atomically(path: Path, columns: Mapping[str, Any] | pa.Table, schema: pa.Schema) -> None:
    """Writes equally long columns, one per field of the schema."""
    sink = pa.BufferOutputStream()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(dict(columns), schema=schema), sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def write_arrays_atomically(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays as an npz file."""
    sink = io.BytesIO()
    np.savez(sink, **dict(arrays))
    write_atomically(path, sink.getvalue())


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends whole lines to a jsonl file and flushes them to disk; a half-written last line is cut off first."""
    text = "".join(line + "\n" for line in lines).encode()
    with open(path, "a+b") as file:
        _cut_half_line(file)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _cut_half_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def ends_whole(path: Path) -> bool:
    """Whether a file of lines is there and its last line is whole."""
    return path.exists() and path.read_bytes().endswith(b"\n")


def read_lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The objects of a jsonl file; a half-written last line is ignored, any other bad line is named in `problems`."""
    if not path.exists():
        return []
    *whole, _ = path.read_text(errors="replace").split("\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            problems.append(f"{path.name}: line {number} cannot be read and is left out")
    return rows


def read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty where there is none, and where it is damaged, which is named in `problems`."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text())
    except ValueError:
        problems.append(f"{path.name} cannot be read and is left out")
        return {}
    return value if isinstance(value, dict) else {}


def read_arrays(path: Path, problems: list[str]) -> dict[str, np.ndarray]:
    """The arrays of an npz file; none where there is none, and where it is damaged, which is named in `problems`."""
    if not path.exists():
        return {}
    try:
        with np.load(path) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        problems.append(f"{path.name} cannot be read and is left out")
        return {}


def read_table(path: Path, schema: pa.Schema, problems: list[str]) -> pa.Table:
    """A parquet file; an empty table where there is none, and where it is damaged, which is named in `problems`."""
    if not path.exists():
        return schema.empty_table()
    try:
        return pq.read_table(path).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError) as error:
        problems.append(f"{path.name} cannot be read and is left out ({str(error).splitlines()[0]})")
        return schema.empty_table()


def joined(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """One below the other."""
    return pa.concat_tables([schema.empty_table(), *tables])
