"""A CSV table: a row per sample, a target column, and optionally a user column.

One file, which is one part, or a folder with one file for the train and one for the test part.
"""

import re
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config import DataConfig
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.tables import TableOptions, TableReader, TableRows
from fedbench.errors import ConfigError

NO_NUMBER = ("NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none")
"""Texts for missing numbers in tables."""
READ: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "low_memory": False}
"""Only empty cells are missing, because NA may be a name; pandas infers the type of a column from all of it."""
FRACTION = re.compile(r"[-+]?\d*\.\d+(e[-+]?\d+)?")
OTHER_SEPARATORS = (";", "\t", "|")
Options = TableOptions
HAS_COLUMNS = True


def source(config: DataConfig, options: Options, progress: OnProgress | None, beside: Beside) -> Source:
    path = path_in_name(config)
    files = find_part_files(path)
    reader = TableReader(options, config.task, beside=beside)
    decided = {**options.model_dump(), "task": config.task, **beside.decided}
    return Source(f"csv:{path}", partial(read, path, files, reader), tuple(files.values()), decided)


def find_part_files(path: Path) -> dict[str, Path]:
    """The file of each part; only `train` for a single file. Raises ConfigError."""
    if path.is_file():
        return {"train": path}
    files = {part: path / f"{part}.csv" for part in ("train", "test")}
    for file in files.values():
        if not file.is_file():
            raise ConfigError(f"data csv:{path}: neither a file nor a folder with train.csv and test.csv")
    return files


def read(path: Path, files: dict[str, Path], reader: TableReader) -> Content:
    first, *others = tables = [load_table(file, str if len(files) > 1 else None) for file in files.values()]
    for table in others:
        if other := sorted({*first.columns} ^ {*table.columns}):
            raise ConfigError(
                f"data csv:{path}: train.csv and test.csv have different columns: one lacks {other[0]}; "
                "csv:PATH/train.csv alone is data of one part"
            )
    whole = with_numbers(with_one_type(tables) if others else first)
    named = [(file.name, len(table)) for file, table in zip(files.values(), tables, strict=True)]
    sizes = {part: len(table) for part, table in zip(files, tables, strict=True)}
    return reader.content(TableRows(f"data csv:{path}", named), whole, sizes)


def load_table(file: Path, types: type | None = None) -> pd.DataFrame:
    """Reads a file as a table. types: of all columns, if set. Raises ConfigError."""
    with refuse_damage(file, "not a table that pandas can read"):
        try:
            table = pd.read_csv(file, dtype=types, **READ)
        except UnicodeDecodeError:
            raise ConfigError(f"{file}: not a table in UTF-8; save it as text in that encoding") from None
    if not len(table):
        raise ConfigError(f"{file}: no rows in it")
    table = table.rename(columns=lambda name: str(name).strip())
    if sum(map(bool, map(FRACTION.fullmatch, table.columns))) > len(table.columns) / 2:
        raise ConfigError(f"{file}: the first line holds numbers; write a line with the names of the columns above it")
    if len(table.columns) == 1 and any(other in table.columns[0] for other in OTHER_SEPARATORS):
        raise ConfigError(f"{file}: the one column {table.columns[0]!r} looks like several; separate them by commas")
    return table


def with_one_type(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenates tables of text, with one type per column."""
    text = pd.concat(tables, ignore_index=True).to_csv(index=False)
    return pd.read_csv(StringIO(text), **READ)


def with_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Converts columns of numbers in which some cells mark missing numbers."""
    for name in table.columns:
        if not pd.api.types.is_object_dtype(table[name]) and not pd.api.types.is_string_dtype(table[name]):
            continue
        left = table[name].mask(table[name].isin(NO_NUMBER))
        numbers = pd.to_numeric(left, errors="coerce")
        if left.notna().any() and numbers.notna().equals(left.notna()):
            table[name] = numbers
    return table
