"""Tables: a row per sample, a target column, and optionally a user column.

Numbers are features, truth values 0 and 1; columns of text are categories, with a feature per value. A column of lists
of one length holds a vector per row: alone it is the sample, of tokens if its numbers are whole; beside others its
numbers are features.
"""

import re
from dataclasses import dataclass
from functools import partial
from numbers import Number
from typing import NoReturn

import numpy as np
import pandas as pd
from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Block, Content
from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.data.reading.images import Item
from fedbench.data.reading.items import DOMAIN_KEYS, TARGETS, check_channels, domain_numbers, find_key, key_of
from fedbench.data.reading.resolution import check_resolution
from fedbench.data.reading.samples import SampleKind, SampleReader
from fedbench.data.reading.targets import piece_of, read_targets
from fedbench.errors import ConfigError
from fedbench.tasks.targets import TargetError, Targets

DECIMAL_COMMA = re.compile(r"-?\d+(,\d+)?")
CELLS = (str, Number, np.generic, np.ndarray, list)
"""Types of cells that can be read."""
MOST_CATEGORIES = 50
"""Maximum number of different values of a text column read as categories."""
FEW_ROWS = 10
"""Up to so many rows a column may count them by chance."""
INDEX = ("Unnamed:", "__index_level_")
"""How the names of columns begin that pandas writes for an index without a name."""


class TableOptions(Section):
    label: str | None = Field(None, description="target column (default: the one that looks like it)")
    user: str | None = Field(
        None, description="column with the user of each row (default: the one that looks like it, if any)"
    )
    drop: list[str] = Field([], description="columns to omit")


@dataclass(frozen=True)
class TableRows:
    """The places of rows of the combined table. files: name and number of rows of each."""

    where: str
    files: list[tuple[str, int]]

    def place(self, row: int) -> str:
        """The row as a reader counts, from 1 and without the header line."""
        name, own = piece_of(self.files, row)
        return f"{self.where}{f'/{name}' if len(self.files) > 1 else ''}, row {own + 1}"


@dataclass(frozen=True)
class TableReader:
    """How a table is read. names, classes: the classes and their number, if the source says; kind: of the samples.

    beside: columns that a partition reads, which are no features.
    """

    options: TableOptions
    task: str
    names: tuple[str, ...] = ()
    classes: int | None = None
    kind: SampleKind | None = None
    beside: Beside = NOTHING

    def content(self, rows: TableRows, whole: pd.DataFrame, sizes: dict[str, int]) -> Content:
        """sizes: rows of train, val and test, in this order; without a test part the table has one.

        Raises ConfigError.
        """
        where, whole = rows.where, with_float_columns(whole)
        label, user = columns_of(where, whole, self.options)
        dropped = [name for name in self.options.drop if name not in whole.columns]
        if dropped:
            raise ConfigError(f"data.drop: {where} has no column {dropped[0]!r}")
        beside = self.beside.among([*whole.columns], where, "column")
        if label in beside:
            raise ConfigError(f"{beside.first_key}: column {label} is the target; name another")
        out = [name for name in whole.columns if name.startswith(INDEX) or name in self.options.drop]
        out = [name for name in out if name not in beside]
        used = [name for name in whole.columns if name not in (label, user, *beside, *out)]
        for name in dict.fromkeys(filter(None, [label, user, *beside, *used])):
            no_feature = name in (label, user, *beside)
            remedy = "" if no_feature and name != user else f", or --data.drop {name}"
            check_cells(rows, whole[name], remedy, any_kind=no_feature and name != label)
        samples, columns, remarks = read_samples(rows, whole[used], self.kind)
        line = f"column {label} is the target" + (f", {user} is the user of a row" if user else "")
        line += f", rows of one {beside.group} stay together" if beside.group else ""
        line += f", {beside.order} is their order" if beside.order else ""
        remarks.insert(0, line + (f"; left out: {', '.join(out)}" if out else ""))
        train = len(whole) - sizes.get("test", 0)
        targets = stacked_lists(rows, whole[label]) if holds_lists(whole[label]) else plain_values(whole[label])
        owners = None if user is None else owners_of(whole[user])
        groups, order = (None if not name else [*whole[name]] for name in beside)
        return Content(
            train,
            len(whole) - train,
            [Block(samples, targets, owners)],
            categories=True,
            columns=columns,
            kind=self.kind,
            warnings=tuple(remarks),
            val=sizes.get("val", 0),
            targets=partial(table_targets, rows, self),
            domains=partial(domain_numbers, ()),
            one_part="test" not in sizes,
            beside=partial(beside.arrays, groups, order, where),
        )


def columns_of(where: str, table: pd.DataFrame, options: TableOptions) -> tuple[str, str | None]:
    """The columns of target and user. Raises ConfigError."""
    names = [name for name in table.columns if name not in options.drop]
    hint = " (and --data.drop the other, unless it is a feature)"
    user = find_key("user", options.user, DOMAIN_KEYS, names, where, hint, "column")
    label = key_of("label", options.label, TARGETS, names, where, hint, "column")
    return label, user


def owners_of(column: pd.Series) -> np.ndarray:
    """The user of each row: integers (also written as 1.0), which are ordered numerically, or text."""
    if pd.api.types.is_float_dtype(column) and (column == column.round()).all() and column.abs().max() < 2**53:
        column = column.astype("int64")
    return plain_values(column if pd.api.types.is_integer_dtype(column) else column.astype(str))


def plain_values(column: pd.Series) -> np.ndarray:
    """The numbers of a column, or its values as text."""
    return column.to_numpy() if pd.api.types.is_numeric_dtype(column) else column.astype(str).to_numpy(str)


def with_float_columns(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of Python numbers, such as the decimals of a database, as columns of numbers."""
    table = table.infer_objects()
    for name in filter(lambda name: pd.api.types.is_object_dtype(table[name]), table.columns):
        values = table[name].dropna()
        if len(values) and all(isinstance(value, Number) for value in values):
            table = table.assign(**{name: table[name].astype(float)})
    return table


def check_cells(rows: TableRows, column: pd.Series, remedy: str, any_kind: bool) -> None:
    """Raises ConfigError for empty cells and, unless any kind will do, times and what is no number, text or list."""
    missing, kind = np.flatnonzero(column.isna()), column.dtype
    if len(missing):
        raise ConfigError(
            f"{rows.place(missing[0])}: no value in column {column.name} ({len(missing)} such rows); fill them in or "
            f"leave these rows out{remedy}"
        )
    if any_kind:
        return
    if getattr(kind, "kind", "") in "mM" or isinstance(kind, pd.PeriodDtype):
        raise ConfigError(
            f"{rows.where}: column {column.name} holds times ({kind}); turn them into numbers beforehand, such as the "
            f"days since a start{remedy}"
        )
    cells = column if pd.api.types.is_object_dtype(kind) else ()
    for row, value in enumerate(cells):
        if not isinstance(value, CELLS):
            raise ConfigError(
                f"{rows.place(row)}: column {column.name} holds a {type(value).__name__}; turn the column into numbers "
                f"or text beforehand{remedy}"
            )


def read_samples(
    rows: TableRows, table: pd.DataFrame, kind: SampleKind | None
) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """Samples [rows, ...], names of their columns, if any, and how they were read. kind: as chosen, if set.

    Raises ConfigError.
    """
    if not len(table.columns):
        raise ConfigError(f"{rows.where}: no columns besides the target")
    if len(table.columns) > 1 or not holds_lists(table.iloc[:, 0]):
        found, names, remarks = encode_features(rows, table)
        return (as_kind(rows, kind, found) if kind else found), names, remarks
    vectors = stacked_lists(rows, table.iloc[:, 0])
    if kind or vectors.dtype.kind not in "iu":
        return as_kind(rows, kind or "feature", vectors), (), []
    line = f"column {table.columns[0]} holds lists of whole numbers, which are tokens; --data.kind feature for counts"
    return as_kind(rows, "token", vectors), (), [line]


def as_kind(rows: TableRows, kind: SampleKind, values: np.ndarray) -> np.ndarray:
    """float32 or int64 [rows, ...]. Raises ConfigError for numbers that do not fit."""
    if kind == "feature" and values.dtype != np.float32:
        check_channels(rows.where, values)
    return SampleReader(kind)(Item(values, None, rows.where))


def holds_lists(column: pd.Series) -> bool:
    return isinstance(column.iloc[0], np.ndarray | list)


def stacked_lists(rows: TableRows, column: pd.Series) -> np.ndarray:
    """[rows, ...]. Raises ConfigError if the lists have different lengths, or hold anything but numbers."""
    cells: list[np.ndarray] = []
    for row, value in enumerate(column):
        try:
            cell = np.asarray([*value] if isinstance(value, np.ndarray) and value.dtype.hasobject else value)
        except ValueError:
            cell = np.empty(0, object)
        if cell.dtype.kind not in "biuf":
            raise ConfigError(f"{rows.place(row)}: column {column.name} holds something else than a list of numbers")
        if cells and cell.shape != cells[0].shape:
            raise ConfigError(
                f"{rows.place(row)}: column {column.name} holds a list of shape {[*cell.shape]}, before it "
                f"{[*cells[0].shape]}; crop or pad them to one length, for example with 0"
            )
        cells.append(cell)
    return np.stack(cells)


def encode_features(rows: TableRows, table: pd.DataFrame) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """Features float32 [rows, D], their names, and remarks on columns. Raises ConfigError."""
    where, parts, categories, names, index = rows.where, [], [], list[str](), list[str]()
    for name in table.columns:
        column = table[name]
        if holds_lists(column):
            vectors = stacked_lists(rows, column).reshape(len(column), -1)
            check_resolution(where, vectors, [f"column {name}, place {place}" for place in range(vectors.shape[1])])
            names += [f"{name}[{place}]" for place in range(vectors.shape[1])]
            parts.append(vectors.astype(np.float32))
            continue
        if pd.api.types.is_numeric_dtype(column):
            numbers = column.to_numpy()[:, None]
            check_resolution(where, numbers, [f"column {name}"])
            names.append(name)
            steps = np.diff(numbers[:, 0].astype(float))
            if len(numbers) > FEW_ROWS and numbers[0, 0] in (0, 1) and (steps == 1).all():
                index.append(name)
            parts.append(numbers.astype(np.float32))
            continue
        values = sorted(map(str, column.unique()))
        if len(values) > MOST_CATEGORIES and all(map(DECIMAL_COMMA.fullmatch, values)):
            raise ConfigError(f"{where}: column {name} holds numbers with a decimal comma; write a point")
        if len(values) > MOST_CATEGORIES:
            refuse_texts(rows, column, len(values))
        categories.append(f"{name} ({len(values)})")
        names += [f"{name}={value}" for value in values]
        parts.append((plain_values(column)[:, None] == np.array(values)).astype(np.float32))
    features = np.concatenate(parts, axis=1)
    wrong = np.argwhere(~np.isfinite(features))
    if len(wrong):
        raise ConfigError(f"{rows.place(wrong[0][0])}: a value that is not finite; fill it in or leave the row out")
    line = f"columns of text are categories, with a feature for each value: {', '.join(categories)}"
    remarks = [line] if categories else []
    remarks += [f"column {name} counts the rows and is a feature; --data.drop {name} if it is none" for name in index]
    return features, tuple(names), remarks


def refuse_texts(rows: TableRows, column: pd.Series, different: int) -> NoReturn:
    """Raises ConfigError for more texts than a category has, and names the first one among numbers."""
    name, texts = column.name, np.flatnonzero(pd.to_numeric(column.astype(str), errors="coerce").isna())
    if 2 * len(texts) < len(column):
        raise ConfigError(
            f"{rows.place(texts[0])}: {column.iloc[texts[0]]!r} in column {name}, which holds numbers otherwise "
            f"({len(texts)} such rows); fill them in or leave these rows out, or --data.drop {name}"
        )
    example = str(column.iloc[0])[:30]
    raise ConfigError(
        f"{rows.where}: column {name} holds {different} different texts, such as {example!r}, more than the "
        f"{MOST_CATEGORIES} of a category; turn it into numbers beforehand, or --data.drop {name}"
    )


def table_targets(rows: TableRows, reader: TableReader, values: np.ndarray) -> Targets:
    """Raises ConfigError."""
    try:
        return read_targets(values, reader.task, reader.names, reader.classes)
    except TargetError as error:
        raise ConfigError(f"{rows.place(error.row)}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{rows.where}: {error}") from None
