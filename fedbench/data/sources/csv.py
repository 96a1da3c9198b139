"""A CSV table: a row per sample, a target column, and optionally a user column.

One file, which is one part, or a folder with train.csv and test.csv, and perhaps val.csv for validation.
"""

import csv
import re
from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.errors import ParserError
from pandas.io.common import get_handle
from pyarrow import csv as pa_csv

from fedbench.config import DataConfig
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.table_columns import TableOptions
from fedbench.data.reading.tables import TableReader, join_parts, with_plain_names
from fedbench.data.reading.texts import NUMBER, TEXT, all_match
from fedbench.errors import ConfigError

AS_TEXT: dict[str, Any] = {"dtype": TEXT, "header": None, "index_col": False, "keep_default_na": False}
"""Every cell is the text that stands there; no column becomes an index."""
TOO_LONG = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
QUOTED = r"""(?s:\s+".*"|\s*'.*')\s*"""
"""Cells whose quotes belong to the text, because a blank stands before them or they are single ones."""
OTHER_SEPARATORS = (";", "\t", "|")
Options = TableOptions
HAS_COLUMNS = True


def source(config: DataConfig, options: Options, progress: OnProgress | None, beside: Beside) -> Source:
    path = path_in_name(config)
    files = find_part_files(path)
    reader = TableReader(options, config.task, beside=beside, typed=False)
    decided = {**options.model_dump(), "task": config.task, **beside.decided}
    return Source(f"csv:{path}", partial(read, path, files, reader), tuple(files.values()), decided)


def find_part_files(path: Path) -> dict[str, Path]:
    """The file of each part; only `train` for a single file. Raises ConfigError."""
    if path.is_file():
        return {"train": path}
    files = {part: path / f"{part}.csv" for part in ("train", "val", "test")}
    if not all(files[part].is_file() for part in ("train", "test")):
        raise ConfigError(
            f"data csv:{path}: neither a file nor a folder with train.csv and test.csv; files of clients belong into "
            "one, with a column that says whose a row is (--data.user), or in Python into a dict of frames by client"
        )
    return {part: file for part, file in files.items() if part != "val" or file.is_file()}


def read(path: Path, files: dict[str, Path], reader: TableReader) -> Content:
    tables = {file.name: load_table(file) for file in files.values()}
    for file, table in zip(files.values(), tables.values(), strict=True):
        refuse_quotes(file, table, [*reader.options.drop, *reader.options.categories])
    remedy = "; csv:PATH/train.csv alone is data of one part"
    rows, whole = join_parts(f"data csv:{path}", [*tables.items()], remedy)
    return reader.content(rows, whole, dict(zip(files, map(len, tables.values()), strict=True)))


def load_table(file: Path) -> pd.DataFrame:
    """Reads a file as a table of texts. Raises ConfigError."""
    with refuse_damage(file, "not a table that pandas can read"):
        try:
            header, first = first_rows(file)
            names = column_names(file, header, first)
            table = read_even(file, len(names))
            if table is None:
                table = pd.read_csv(file, names=range(len(names)), na_values=[""], **AS_TEXT)
            table = table.iloc[1:]
            refuse_repeated_names(file, table, header)
        except UnicodeDecodeError:
            raise ConfigError(f"{file}: not a table in UTF-8; save it as text in that encoding") from None
        except ParserError as error:
            if match := TOO_LONG.search(str(error)):
                raise too_long(file, f"line {match[2]}", int(match[3]), int(match[1])) from None
            raise
    if len(names) > len(header):
        check_row_names(file, table, len(header))
    return with_plain_names(str(file), table.set_axis(names, axis=1))


def refuse_quotes(file: Path, table: pd.DataFrame, known: Collection[str]) -> None:
    """Raises ConfigError if all filled cells of a column keep their quotes, as categories and classes would.

    known: columns whose cells may.
    """
    for name in table.columns.difference([*known], sort=False):
        cells = table[name].dropna()
        if all_match(cells, QUOTED):
            remedy = "the blanks before quotes" if cells.iloc[0][0].isspace() else "the quotes"
            raise ConfigError(
                f"{file}: column {name} holds texts in quotes, such as {cells.iloc[0]!r}; leave out {remedy}, or set "
                f"--data.categories {name} if they belong to them, or --data.drop {name}"
            )


def refuse_repeated_names(file: Path, table: pd.DataFrame, header: Sequence[str]) -> None:
    """Raises ConfigError if the line of names stands in the file again, as where several files were joined."""
    if len(header) > 1:
        cells = table.iloc[:, -len(header) :]  # without names of rows
        places = np.flatnonzero((cells.iloc[:, 0] == header[0]).fillna(False))  # few, as a table is long
        again = [place for place in places.tolist() if [*cells.iloc[place].fillna("")] == [*header]]
        if again:
            raise ConfigError(
                f"{file}: row {again[0] + 1} repeats the names of the columns ({len(again)} such rows); delete it"
            )


def read_even(file: Path, columns: int) -> pd.DataFrame | None:
    """The texts of a file that has so many values in every line, which Arrow reads in a tenth of the time; else None.

    A file of one column may have lines of blanks, which are no rows.
    """
    if columns < 2:
        return None
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    names = [*map(str, range(columns))]
    texts = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.large_string()), null_values=[""], strings_can_be_null=True
    )
    try:
        with get_handle(file, "rb", compression="infer", is_text=False) as opened:
            table = pa_csv.read_csv(opened.handle, pa_csv.ReadOptions(column_names=names), parsing, texts)
    except pa.ArrowInvalid:
        return None
    return table.combine_chunks().to_pandas(types_mapper=lambda kind: TEXT)


def first_rows(file: Path) -> tuple[list[str], list[str]]:
    """The cells of the line of names, and of the first row below it."""
    with get_handle(file, "r", encoding="utf-8-sig", compression="infer") as opened:
        filled = (row for row in csv.reader(opened.handle) if any(map(str.strip, row)) or len(row) > 1)
        header, first = [*islice(filled, 2), list[str](), list[str]()][:2]
    return [name.strip() for name in header], first


def column_names(file: Path, header: Sequence[str], first: Sequence[str]) -> list[str]:
    """The names of the columns, with one for names of rows that have none. Raises ConfigError if the line has none."""
    line = ",".join(header)
    if re.fullmatch(r"sep=.?", line.rstrip(",")) or (line.startswith("#") and len(header) != len(first)):
        raise ConfigError(f"{file}: the first line, {line[:40]!r}, is no line of names; delete it")
    numbers = [name for name in header if re.fullmatch(NUMBER, name)]
    if 2 * len(numbers) > len(header) and not ascend(numbers):
        raise ConfigError(f"{file}: the first line holds numbers; write a line with the names of the columns above it")
    if len(header) == 1 and any(other in header[0] for other in OTHER_SEPARATORS):
        raise ConfigError(f"{file}: the one column {header[0]!r} looks like several; separate them by commas")
    names = [name or f"Unnamed: {number}" for number, name in enumerate(header)]
    return ["Unnamed: row", *names] if len(first) == len(header) + 1 else names


def ascend(names: Sequence[str]) -> bool:
    """Whether numbers number columns: whole ones in equal steps."""
    if not all(map(str.isdecimal, names)):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(names)}
    return len(steps) < 2 and min(steps, default=1) > 0


def check_row_names(file: Path, table: pd.DataFrame, named: int) -> None:
    """Raises ConfigError for rows of one value more than names, unless different texts or 1, 2, ... stand in front."""
    first = table.iloc[:, 0]
    if table.iloc[:, -1].isna().all():
        raise too_long(file, "every row", named + 1, named, " (a comma at the end)")
    counted = first.tolist() == [str(number) for number in range(1, len(first) + 1)]
    numbers = first.str.fullmatch(NUMBER).fillna(True).any()
    if not counted and (numbers or first.duplicated().any()):
        raise too_long(file, "the first row", named + 1, named)


def too_long(file: Path, where: str, values: int, names: int, why: str = "") -> ConfigError:
    return ConfigError(
        f"{file}: {values} values in {where}{why}, and {names} names in the first line; write a name for each column, "
        "and quotes around values with a comma"
    )
