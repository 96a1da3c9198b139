"""Files of a results folder: written whole or not at all, and read although a process died while it wrote."""

import io
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import lock_descriptor
from pydantic import TypeAdapter, ValidationError

from fedbench.errors import ConfigError, first_line

T = TypeVar("T")


PART_SUFFIX = ".part"
"""How the names of files end that are half written; they begin with a dot."""


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Errors of a block that writes a file name it, also those of a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


LOCK_POLL = 0.1
"""Seconds between two looks at a lock."""
PIECES = Path("checkpoint", "rows")
"""Where a run that is under way keeps the rows of its tables."""
GROUP = 1 << 20
"""Rows of a row group of a parquet file."""


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when it is whole: flushed to disk, then renamed."""
    with name_file_in_errors(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART_SUFFIX)
        try:
            with os.fdopen(handle, "wb") as file:
                _try_lock(file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.chmod(name, 0o644)  # mkstemp gives 0600, but results are there to be shared
                os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def hold_file_lock(path: Path, patience: float, busy: str) -> Iterator[None]:
    """Hold the lock of a file or folder for a block. It leaves no file, and ends with its process however that ends.

    Raises ConfigError with the line `busy` where another process holds it for longer than so many seconds.
    """
    handle, deadline = os.open(path, os.O_RDONLY), time.monotonic() + patience
    try:
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise ConfigError(f"{busy}; wait until it ends, or give another --out")
            time.sleep(LOCK_POLL)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock an open file unless another process holds it; a file system without locks counts as locked."""
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return True


def remove_half_written(folder: Path) -> None:
    """Remove what killed processes left half written in a folder; a process that still writes holds a lock."""
    for path in folder.glob(f".*{PART_SUFFIX}"):
        with suppress(OSError), path.open("rb") as file:
            if lock_descriptor(file.fileno(), blocking=False):
                path.unlink()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole file or leaves the old one."""
    with replace_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json_atomically(path: Path, value: Any) -> None:
    """As indented JSON, keys in their own order."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def write_parquet_atomically(path: Path, columns: Mapping[str, Any] | pa.Table, schema: pa.Schema) -> None:
    """Writes equally long columns, one per field of the schema."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns), schema)
    write_tables_atomically(path, [table], schema)


def write_tables_atomically(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Writes tables one below the other, a few of them in memory at a time; where they are cut leaves no trace."""
    held = schema.empty_table()
    with replace_file(path) as file, pq.ParquetWriter(file, schema) as writer:
        for table in tables:
            held = pa.concat_tables([held, table])
            while len(held) >= GROUP:
                writer.write_table(held.slice(0, GROUP).combine_chunks(), GROUP)
                held = held.slice(GROUP)
        if len(held):
            writer.write_table(held.combine_chunks(), GROUP)


def write_arrays_atomically(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays as an npz file."""
    sink = io.BytesIO()
    np.savez(sink, **dict(arrays))  # type: ignore[arg-type]
    write_atomically(path, sink.getvalue())


def rerun_hint(folder: Path) -> str:
    """What to do about a file of a run that is gone or damaged."""
    return f"bring it back, or delete {folder} to run it anew"


def flush(path: Path) -> None:
    """Have a file on disk, whatever happens to the machine. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends whole lines to a jsonl file and flushes them to disk; a half-written last line is cut off first."""
    text = "".join(line + "\n" for line in lines).encode()
    with name_file_in_errors(path), open(path, "a+b") as file:
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
    return path.is_file() and path.read_bytes().endswith(b"\n")


def read_lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The objects of a jsonl file; a half-written last line is ignored, any other bad line is named in `problems`."""
    *whole, _ = _text(path, problems).split("\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            problems.append(f"{path.name}: line {number} cannot be read and is left out")
    return rows


def read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty where there is none, and where it is damaged, which is named in `problems`."""
    if not (text := _text(path, problems)) and not path.is_file():
        return {}
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        problems.append(f"{path.name} cannot be read and is left out")
        return {}


def _text(path: Path, problems: list[str]) -> str:
    """Empty where there is none, and where what is there is no file, which is named in `problems`."""
    try:
        return path.read_text(errors="replace") if path.exists() else ""
    except OSError as error:
        problems.append(f"{path.name} cannot be read and is left out ({error.strerror})")
        return ""


def read_as(kind: type[T], path: Path) -> T:
    """A JSON file as a dataclass. Raises ConfigError where it is of another shape."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
        what = f"({where}), or written by another version of fedbench"
    except OSError as error:
        what = f"({error.strerror})"
    raise ConfigError(f"{path}: damaged {what}; bring it back, or give the command that made it again")


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
        problems.append(f"{path.name} cannot be read and is left out ({first_line(error)})")
        return schema.empty_table()


def read_rows(folder: Path, name: str, schema: pa.Schema, problems: list[str]) -> pa.Table:
    """A table of a run, or while the run is under way the pieces that it has left so far."""
    parts = [folder / name] if (folder / name).exists() else table_pieces(folder, name)
    return concatenate_tables([read_table(path, schema, problems) for path in parts], schema)


def table_pieces(folder: Path, name: str) -> list[Path]:
    """The rows of a table that a run has kept beside its checkpoints, in their order."""
    stem, dot, suffix = name.partition(".")
    return sorted((folder / PIECES).glob(f"{stem}-*{dot}{suffix}"))


def concatenate_tables(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """One below the other."""
    return pa.concat_tables([schema.empty_table(), *tables])
