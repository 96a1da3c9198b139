"""A CSV table: a row per sample, a target column, and optionally a user column.

Numbers are features, truth values 0 and 1; columns of text are categories, with a feature per value. One file, of which
every fifth row is for testing, or a folder with one file for the train and one for the test part.
"""

import re
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.reading.images import is_test_row, library_reason
from fedbench.data.reading.items import DOMAIN_KEYS, TARGETS, domain_numbers, find_key, key_of
from fedbench.data.reading.resolution import check_resolution
from fedbench.data.reading.targets import read_targets
from fedbench.errors import ConfigError
from fedbench.tasks.targets import TargetError, Targets

if TYPE_CHECKING:
    from pandas import DataFrame, Series

NO_NUMBER = ("NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none")
"""Texts for missing numbers in tables."""
READ: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "low_memory": False}
"""Only empty cells are missing, because NA may be a name; pandas infers the type of a column from all of it."""
DECIMAL_COMMA = re.compile(r"-?\d+(,\d+)?")
OTHER_SEPARATORS = (";", "\t", "|")
MOST_CATEGORIES = 50
"""Maximum number of different values of a text column read as categories."""


class Options(Section):
    """Keys `data.*` of a table."""

    label: str | None = Field(None, description="target column (default: the one that looks like it)")
    user: str | None = Field(
        None, description="column with the user of each row (default: the one that looks like it, if any)"
    )
    drop: list[str] = Field([], description="columns to omit")


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    path = Path(config.root or ".", Path(config.name.partition(":")[2]).expanduser()).resolve()
    files = find_part_files(path)
    decided = {**options.model_dump(), "task": config.task}
    return Source(f"csv:{path}", partial(read, path, files, options, config.task), tuple(files.values()), decided)


def find_part_files(path: Path) -> dict[str, Path]:
    """The file of each part; only `train` for a single file. Raises ConfigError."""
    if path.is_file():
        return {"train": path}
    files = {part: path / f"{part}.csv" for part in ("train", "test")}
    for file in files.values():
        if not file.is_file():
            raise ConfigError(f"data csv:{path}: neither a file nor a folder with train.csv and test.csv")
    return files


def read(path: Path, files: dict[str, Path], options: Options, task: str) -> Content:
    first, *others = (load_table(file, str if len(files) > 1 else None) for file in files.values())
    for table in others:
        if other := sorted({*first.columns} ^ {*table.columns}):
            raise ConfigError(f"data csv:{path}: train.csv and test.csv have different columns: one lacks {other[0]}")
    whole = with_numbers(with_one_type([first, *others]) if others else first)
    where = f"data csv:{path}"
    rows = TableRows(
        where, [(file.name, len(table)) for file, table in zip(files.values(), [first, *others], strict=True)]
    )
    label, user = columns_of(where, whole, options)
    left_out = [name for name in whole.columns if name.startswith("Unnamed:") or name in options.drop]
    for name in options.drop:
        if name not in whole.columns:
            raise ConfigError(f"data.drop: {where} has no column {name!r}")
    used = [name for name in whole.columns if name not in (label, user, *left_out)]
    for name in filter(None, [label, user, *used]):
        check_whole(rows, whole[name])
    features, remarks = encode_features(rows, whole[used])
    test = np.arange(len(whole)) >= len(first) if others else np.array([is_test_row(i) for i in range(len(whole))])
    owners = None if user is None else owners_of(whole[user])
    remarks.insert(0, columns_text(label, user, left_out))
    if not others:
        remarks.append("the table has no test part: every fifth row is for testing")
    blocks = [
        Block(features[own], targets_of(whole[label])[own], None if owners is None else owners[own])
        for own in (~test, test)
    ]
    meaning = partial(table_targets, rows, np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)]), task)
    return Content(
        int((~test).sum()),
        int(test.sum()),
        blocks,
        categories=True,
        warnings=tuple(remarks),
        targets=meaning,
        domains=partial(domain_numbers, ()),
    )


@dataclass(frozen=True)
class TableRows:
    """The places of rows of the combined table. files: name and number of rows of each."""

    where: str
    files: list[tuple[str, int]]

    def place(self, row: int) -> str:
        """The row as a reader counts, from 1 and without the header line."""
        for name, count in self.files:
            if row < count:
                return f"{self.where}{f'/{name}' if len(self.files) > 1 else ''}, row {row + 1}"
            row -= count
        raise IndexError(row)


def load_table(file: Path, types: type | None = None) -> "DataFrame":
    """Reads a file as a table. types: of all columns, if set. Raises ConfigError."""
    import pandas as pd

    try:
        table = pd.read_csv(file, dtype=types, **READ)
    except Exception as error:
        raise ConfigError(f"{file}: not a table that pandas can read ({library_reason(error)})") from error
    if not len(table):
        raise ConfigError(f"{file}: no rows in it")
    table = table.rename(columns=str)
    if len(table.columns) == 1 and any(other in table.columns[0] for other in OTHER_SEPARATORS):
        raise ConfigError(f"{file}: the one column {table.columns[0]!r} looks like several; separate them by commas")
    return table


def with_one_type(tables: "list[DataFrame]") -> "DataFrame":
    """Concatenates tables of text, with one type per column."""
    import pandas as pd

    text = pd.concat(tables, ignore_index=True).to_csv(index=False)
    return pd.read_csv(StringIO(text), **READ)


def with_numbers(table: "DataFrame") -> "DataFrame":
    """Converts columns of numbers in which some cells mark missing numbers."""
    import pandas as pd

    for name in table.columns:
        if not pd.api.types.is_object_dtype(table[name]) and not pd.api.types.is_string_dtype(table[name]):
            continue
        left = table[name].mask(table[name].isin(NO_NUMBER))
        numbers = pd.to_numeric(left, errors="coerce")
        if left.notna().any() and numbers.notna().equals(left.notna()):
            table[name] = numbers
    return table


def columns_of(where: str, table: "DataFrame", options: Options) -> tuple[str, str | None]:
    """The columns of target and user. Raises ConfigError."""
    names = [name for name in table.columns if name not in options.drop]
    hint = " (and --data.drop the other, unless it is a feature)"
    user = find_key("user", options.user, DOMAIN_KEYS, names, where, hint, "column")
    label = key_of("label", options.label, TARGETS, names, where, hint, "column")
    assert label is not None
    return label, user


def columns_text(label: str, user: str | None, left_out: list[str]) -> str:
    """Says which columns are not features."""
    line = f"column {label} is the target"
    line += f", {user} is the user of a row" if user else ""
    return line + (f"; left out: {', '.join(left_out)}" if left_out else "")


def owners_of(column: "Series") -> np.ndarray:
    """The user of each row: integers (also written as 1.0), which are ordered numerically, or text."""
    import pandas as pd

    if pd.api.types.is_float_dtype(column) and (column == column.round()).all() and column.abs().max() < 2**53:
        column = column.astype("int64")
    return column.to_numpy() if pd.api.types.is_integer_dtype(column) else column.astype(str).to_numpy(str)


def check_whole(rows: TableRows, column: "Series") -> None:
    missing = np.flatnonzero(column.isna())
    if len(missing):
        raise ConfigError(
            f"{rows.place(missing[0])}: no value in column {column.name} ({len(missing)} such rows); fill them in, "
            f"leave these rows out, or --data.drop {column.name}"
        )


def encode_features(rows: TableRows, table: "DataFrame") -> tuple[np.ndarray, list[str]]:
    """Features float32 [rows, D], and how text columns were read. Raises ConfigError."""
    import pandas as pd

    where = rows.where
    if not len(table.columns):
        raise ConfigError(f"{where}: no columns besides the target")
    parts, categories = [], []
    for name in table.columns:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            numbers = column.to_numpy()[:, None]
            check_resolution(where, numbers, [f"column {name}"])
            parts.append(numbers.astype(np.float32))
            continue
        values = sorted(map(str, column.unique()))
        if len(values) > MOST_CATEGORIES and all(map(DECIMAL_COMMA.fullmatch, values)):
            raise ConfigError(f"{where}: column {name} holds numbers with a decimal comma; write a point")
        if len(values) > MOST_CATEGORIES:
            raise ConfigError(
                f"{where}: column {name} holds {len(values)} different texts, more than the {MOST_CATEGORIES} of a "
                f"category; --data.drop {name} leaves it out"
            )
        categories.append(f"{name} ({len(values)})")
        parts.append((column.astype(str).to_numpy(str)[:, None] == np.array(values)).astype(np.float32))
    features = np.concatenate(parts, axis=1)
    wrong = np.argwhere(~np.isfinite(features))
    if len(wrong):
        raise ConfigError(f"{rows.place(wrong[0][0])}: a value that is not finite; fill it in or leave the row out")
    line = f"columns of text are categories, with a feature for each value: {', '.join(categories)}"
    return features, [line] if categories else []


def targets_of(column: "Series") -> np.ndarray:
    import pandas as pd

    return column.to_numpy() if pd.api.types.is_numeric_dtype(column) else column.astype(str).to_numpy(str)


def table_targets(rows: TableRows, order: np.ndarray, task: str, values: np.ndarray) -> Targets:
    """order: the row in the combined table of each target. Raises ConfigError."""
    try:
        return read_targets(values, task)
    except TargetError as error:
        raise ConfigError(f"{rows.place(order[error.row])}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{rows.where}: {error}") from None
