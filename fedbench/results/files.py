"""Files of a results folder: written completely or not at all, and readable even after a crash while writing."""

import errno
import io
import json
import os
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import lock_descriptor
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open

from fedbench.checksums import CHANGED, is_changed, others_in, with_own_checksum
from fedbench.errors import ConfigError, first_line

T = TypeVar("T")


UNREADABLE = (
    *(OSError, ValueError, TypeError, EOFError, KeyError, SyntaxError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""Exceptions of NumPy for damaged files."""
PART_SUFFIX = ".part"
"""The suffix of incomplete files, whose names begin with a dot."""


OCCUPIED = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENOTEMPTY)
"""Errors of a file or folder in whose place stands something else."""


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Adds the file name to errors in this block, also for a full disk.

    Raises ConfigError if something else stands in the file's place.
    """
    try:
        yield
    except OSError as error:
        if line := occupied_line(path, error):
            raise ConfigError(line) from error
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def occupied_line(path: Path, error: OSError) -> str | None:
    """The remedy if something else stands in the place of a file or folder; None if that is not the error."""
    if error.errno not in OCCUPIED:
        return None
    obstacle = next((p for p in (*reversed(path.parents), path) if os.path.lexists(p) and not p.is_dir()), path)
    kind = "a link that leads nowhere" if not obstacle.exists() else "a folder" if obstacle.is_dir() else "a file"
    return f"{path}: cannot be written, because {obstacle} is {kind}; move it away and repeat the command"


LOCK_POLL = 0.1
"""Seconds between two tries of a lock."""
PIECES = Path("checkpoint", "rows")
"""Where a running run stores the rows of its tables."""
CHECKPOINTS = "checkpoint/round-*.safetensors"
GROUP = 1 << 20
"""Rows per row group of a parquet file."""


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that replaces `path` when complete: flushed to disk, then renamed."""
    with name_file_in_errors(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART_SUFFIX)
        try:
            with os.fdopen(handle, "wb") as file:
                _try_lock(file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.chmod(name, 0o644)  # mkstemp gives 0600, but results are meant to be shared
                os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def hold_file_lock(path: Path, patience: float, busy: str) -> Iterator[None]:
    """Holds the lock of a file or folder for a block. Leaves no file, and ends with its process in any case.

    Raises ConfigError with the line `busy` if another process holds it for longer than `patience` seconds.
    """
    handle, deadline = os.open(path, os.O_RDONLY), time.monotonic() + patience
    try:
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise ConfigError(f"{busy}; wait until it ends, or use another --out")
            time.sleep(LOCK_POLL)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Locks an open file unless another process holds it; a file system without locks counts as locked."""
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return True


def remove_half_written(folder: Path) -> None:
    """Removes incomplete files of killed processes in a folder; active writers hold a lock."""
    for path in folder.glob(f".*{PART_SUFFIX}"):
        with suppress(OSError), path.open("rb") as file:
            if lock_descriptor(file.fileno(), blocking=False):
                path.unlink()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole file or keeps the old one."""
    with replace_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json_atomically(path: Path, value: Any, own_checksum: bool = False) -> None:
    """Writes indented JSON with keys in order. own_checksum: of an object, so that readers notice changes."""
    write_atomically(path, json.dumps(with_own_checksum(value, path.name) if own_checksum else value, indent=2) + "\n")


def write_parquet_atomically(path: Path, columns: Mapping[str, Any] | pa.Table, schema: pa.Schema) -> None:
    """Writes columns of equal length, one per field of the schema."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns), schema)
    write_tables_atomically(path, [table], schema)


def write_tables_atomically(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Concatenates tables, with a few in memory at a time; the result does not depend on where they are split."""
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


def seed_file(folder: Path, kind: str, seed: int) -> Path:
    """The file of a seed in a run's folder. kind: the folder in it, of predictions or outcomes."""
    return folder / kind / f"seed-{seed}.npz"


def write_points(path: Path, points: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Writes the arrays of all evaluation points as POINT/NAME."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays_atomically(
        path, {f"{p}/{name}": array for p, arrays in points.items() for name, array in arrays.items()}
    )


def rerun_hint(folder: Path) -> str:
    """The remedy for a missing or damaged file of a run."""
    return f"bring the file back, or delete {folder} to run it again"


def damage_error(path: Path, what: str, folder: Path | None = None) -> ConfigError:
    """The error for a missing or damaged file of a run. folder: of the run, by default that of the file."""
    return ConfigError(f"{path}: {what}; {rerun_hint(folder or path.parent)}")


def flush(path: Path) -> None:
    """Flushes a file to disk, so that it survives a power cut. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends whole lines to a jsonl file; removes an incomplete last line first.

    A process that dies leaves them whole; `flush` makes them survive a power cut.
    """
    text = "".join(line + "\n" for line in lines).encode()
    with name_file_in_errors(path), open(path, "a+b") as file:
        _cut_half_line(file)
        file.write(text)


def _cut_half_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def ends_whole(path: Path) -> bool:
    """Whether a file of lines exists and its last line is complete."""
    return path.is_file() and path.read_bytes().endswith(b"\n")


def read_lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """The objects of a jsonl file; ignores an incomplete last line and names other bad lines in `problems`."""
    *whole, _ = _read_text(path, problems).split("\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole, 1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            problems.append(f"{path.name}: line {number} cannot be read and is left out")
    return rows


def read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty if missing or damaged; the latter is named in `problems`."""
    if not (text := _read_text(path, problems)) and not path.is_file():
        return {}
    try:
        value = dict(json.loads(text))
        if not is_changed(value, path.name):
            return value
        problems.append(f"{path.name}: {CHANGED}, and is left out")
    except (ValueError, TypeError, RecursionError):
        problems.append(f"{path.name} cannot be read and is left out")
    return {}


def _read_text(path: Path, problems: list[str]) -> str:
    """The text of a file; empty if missing, or if it is not a file, which is named in `problems`."""
    try:
        _refuse_pipe(path)
        return path.read_text(errors="replace") if path.exists() else ""
    except OSError as error:
        problems.append(f"{path.name} cannot be read and is left out ({error.strerror})")
        return ""


def _refuse_pipe(path: Path) -> None:
    """Raises OSError for a pipe, because reading it would wait for somebody who writes."""
    if path.is_fifo():
        raise OSError(errno.ESPIPE, "it is a pipe")


def read_as(kind: type[T], path: Path, faults: Callable[[T], Iterable[str]] = lambda value: ()) -> T:
    """Reads a JSON file as a dataclass. Raises ConfigError if it has another structure, or one of these faults."""
    try:
        _refuse_pipe(path)
        content = path.read_bytes()
        value = TypeAdapter(kind).validate_json(content)
        fault = CHANGED if is_changed(dict(json.loads(content)), path.name) else next(iter(faults(value)), None)
        if fault is None:
            return value
        what = f"({fault})"
    except ValidationError as error:
        first = error.errors()[0]
        why = first["msg"].removeprefix("Value error, ")
        where = ": ".join(filter(None, [".".join(map(str, first["loc"])), why]))
        what = f"({where}), or written by another version of fedbench"
    except OSError as error:
        what = f"({error.strerror})"
    except RecursionError:
        what = "(nested too deep)"
    raise ConfigError(
        f"{path}: damaged {what}; bring the file back, or move it away and repeat the command that wrote it"
    )


def read_arrays(path: Path, problems: list[str]) -> dict[str, np.ndarray]:
    """The arrays of an npz file; none if missing or damaged; the latter is named in `problems`."""
    if not path.exists():
        return {}
    try:
        _refuse_pipe(path)
        with np.load(path) as file:
            return dict(file)
    except UNREADABLE:
        problems.append(f"{path.name} cannot be read and is left out")
        return {}


def read_table(path: Path, schema: pa.Schema, problems: list[str]) -> pa.Table:
    """A parquet file; an empty table if missing or damaged; the latter is named in `problems`."""
    if not path.exists():
        return schema.empty_table()
    try:
        _refuse_pipe(path)
        return pq.read_table(path).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        problems.append(f"{path.name} cannot be read and is left out ({reason})")
        return schema.empty_table()


def known_checksums(folder: Path) -> dict[str, str]:
    """The checksums of the files of a run: of a finished one in its summary, else in description and checkpoint."""
    if (folder / "summary.json").exists():
        return others_in(read_json(folder / "summary.json", []), "summary.json")
    known = others_in(read_json(folder / "environment.json", []), "environment.json")
    for path in sorted(folder.glob(CHECKPOINTS))[-1:]:
        with suppress(OSError, SafetensorError, ValueError, TypeError), safe_open(path, "np") as file:
            known |= json.loads((file.metadata() or {}).get("files", "{}"))
    return known


def table_pieces(name: str) -> str:
    """The pattern of the pieces of a table that a run has stored with its checkpoints."""
    stem, dot, suffix = name.partition(".")
    return f"{PIECES}/{stem}-*{dot}{suffix}"


def concatenate_tables(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenates tables."""
    return pa.concat_tables([schema.empty_table(), *tables])
