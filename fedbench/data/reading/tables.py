"""Tables: a row per sample, a target column, and optionally a user column.

Numbers are features, truth values 0 and 1; texts are categories, with a feature per value, unless they are numbers in
another form (`texts.py` has the table). A column of lists of one length holds a vector per row: alone it is the sample,
of tokens if its numbers are whole; beside others its numbers are features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from fedbench.data.cache import Block, Content
from fedbench.data.raw_columns import feature_names
from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.data.reading.cells import (
    TableRows,
    check_categories,
    check_cells,
    check_code_name,
    check_codes,
    check_missing,
    check_parts,
    check_points_of_thousands,
    check_sentinels,
    check_tokens,
    check_totals,
    check_truth,
    has_number_categories,
    holds_lists,
    holds_texts,
    refuse_bytes,
    refuse_faults,
    stacked_lists,
    with_clean_texts,
    with_float_columns,
)
from fedbench.data.reading.images import Item
from fedbench.data.reading.item_values import domain_numbers
from fedbench.data.reading.resolution import check_channels, check_resolution
from fedbench.data.reading.samples import SampleKind, SampleReader
from fedbench.data.reading.spelling import with_one_spelling
from fedbench.data.reading.table_columns import Features, Roles, TableOptions, columns_of
from fedbench.data.reading.table_decisions import decisions_on, remarks_on_samples, remarks_on_target, remarks_on_user
from fedbench.data.reading.targets import FEW_VALUES, read_targets, refuse_count
from fedbench.data.reading.texts import (
    CODES,
    NUMBER,
    TEXT,
    all_match,
    are_numbers,
    counts_of,
    has_codes,
    matches,
    numbers_of,
)
from fedbench.data.unseen import unseen_features
from fedbench.errors import ConfigError, nearest, open_decision
from fedbench.tasks.class_numbers import in_order, plain_numbers
from fedbench.tasks.targets import TargetError, Targets

INDEX = ("Unnamed:", "__index_level_")
"""How the names of columns begin that pandas writes for an index without a name."""


@dataclass(frozen=True)
class TableReader:
    """How a table is read. names, classes: the classes and their number, if the source says; kind: of the samples.

    beside: columns that a partition reads, which are no features. typed: whether columns have types, so that numbers
    written as text are texts. owner: the column of users, if the source has one and no other is named.
    """

    options: TableOptions
    task: str
    names: tuple[str, ...] = ()
    classes: int | None = None
    kind: SampleKind | None = None
    beside: Beside = NOTHING
    typed: bool = True
    owner: str | None = None

    def content(self, rows: TableRows, whole: pd.DataFrame, sizes: dict[str, int]) -> Content:
        """The content of a whole table. Raises ConfigError.

        sizes: rows of train, val and test, in this order; without a test part the table has one.
        """
        whole = with_float_columns(whole)
        roles = self.roles(rows.where, whole)
        table = self.cells(rows, whole, roles)
        train = len(table) - sizes.get("test", 0)
        samples, read = self.samples(rows, table, roles)
        targets = self.target(rows, table[roles.label])
        owners, owner_names = self.owners(rows, table, roles.user)
        merged = self.options.spelling == "merged"
        raw = tuple(features.raw(name, merged) for name, features in read.items())
        names = feature_names(raw)
        remarks = (
            *remarks_on_samples(self.kind, roles, samples, read),
            *remarks_on_target((table[name] for name in read), table[roles.label]),
            *remarks_on_user((table[name] for name in read), owners),
        )
        return Content(
            train,
            len(table) - train,
            [Block(samples, targets, owners)],
            categories=True,
            numbers=tuple(self.options.numbers),
            table=raw,
            kind=self.kind,
            warnings=(*remarks, *unseen_features(samples, names, *np.split(np.arange(len(table)), [train]))),
            val=sizes.get("val", 0),
            targets=partial(table_targets, rows, self),
            domains=partial(domain_numbers, owner_names),
            one_part="test" not in sizes,
            beside=partial(self.groups_and_order, rows.where, table, roles.beside),
            decisions=partial(decisions_on, self.options, roles, read),
        )

    def roles(self, where: str, table: pd.DataFrame) -> Roles:
        """The role of each column. Raises ConfigError."""
        options, names = self.options, [*table.columns]
        label, user = columns_of(where, table, options)
        if user is None and self.owner not in (label, *options.drop, *options.numbers, *options.categories):
            user = self.owner
        for key in ("drop", "numbers", "categories"):
            if unknown := [name for name in getattr(options, key) if name not in names]:
                joined = next((name for name in names if "," in name and unknown[0] in name), None)
                hint = nearest(unknown[0], names)
                if joined:
                    hint = f"a name with a comma stands in brackets and quotes: --data.{key} '[\"{joined}\"]'"
                raise ConfigError(f"data.{key}: {where} has no column {unknown[0]!r}; {hint}")
        if both := [name for name in options.numbers if name in options.categories]:
            raise ConfigError(f"data.numbers, data.categories: column {both[0]} is in both; leave it out of one")
        beside = self.beside.among(names, where, "column")
        if label in beside:
            raise ConfigError(f"{beside.first_key}: column {label} is the target; name another")
        others = {*filter(None, beside)}
        out = [name for name in names if (name.startswith(INDEX) or name in options.drop) and name not in others]
        features = [name for name in names if name not in (label, user, *others, *out)]
        return Roles(label, user, beside, features, out)

    def cells(self, rows: TableRows, table: pd.DataFrame, roles: Roles) -> pd.DataFrame:
        """The columns to read, with clean texts. Raises ConfigError for cells of other types, and missing ones."""
        columns = {}
        for name in roles.read:
            remedy = f", or --data.drop {name}" if name in roles.features else ""
            if name in roles.features or name in (roles.label, roles.user):
                refuse_bytes(rows, table[name], remedy)
            if name in roles.features or name == roles.label:
                check_cells(rows, table[name], remedy)
            columns[name] = with_clean_texts(table[name])
        check_missing(rows, columns, roles.features, self.options.impute == "median")
        for coded, what in ((roles.label, "a class"), (roles.user, "a user"), (roles.beside.group, "a group")):
            if coded and coded not in self.options.categories:
                check_codes(rows, columns[coded], what)
        for name, column in columns.items():
            if name not in self.options.categories:
                check_totals(rows, column)
        return pd.DataFrame(columns)

    def samples(self, rows: TableRows, table: pd.DataFrame, roles: Roles) -> tuple[np.ndarray, dict[str, Features]]:
        """Samples [rows, ...], and the features of every column unless one column holds whole samples.

        Raises ConfigError.
        """
        if not roles.features:
            raise ConfigError(f"{rows.where}: no columns besides the target")
        if len(roles.features) == 1 and holds_lists(table[roles.features[0]]):
            vectors = stacked_lists(rows, table[roles.features[0]])
            usual: SampleKind = "token" if vectors.dtype.kind in "iu" else "feature"
            return as_kind(rows, self.kind or usual, vectors), {}
        check_tokens(rows, {name: table[name] for name in roles.features if name not in self.options.numbers})
        read = {name: self.features(rows, table[name]) for name in roles.features}
        numbers = {name: own.values[:, 0] for name, own in read.items() if own.kind == "number"}
        check_sentinels(rows, {name: own for name, own in numbers.items() if name not in self.options.numbers})
        samples = np.concatenate([features.values for features in read.values()], axis=1)
        return (as_kind(rows, self.kind, samples) if self.kind == "token" else samples), read

    def features(self, rows: TableRows, column: pd.Series) -> Features:
        """One column as features float32 [rows, d]. Raises ConfigError."""
        filled = column.notna().to_numpy(bool)
        read = self.filled_features(rows, column if filled.all() else column[filled])
        wrong = np.argwhere(~np.isfinite(read.values))
        if len(wrong):
            row = column.index[filled][wrong[0][0]]
            large = read.kind == "number" and np.isfinite(float(column[row]))
            fault = "a value too large for float32" if large else "a value that is not finite"
            remedy = "scale the column" if large else "fill it in or leave the row out"
            raise ConfigError(f"{rows.place(row)}: {fault} in column {column.name}; {remedy}")
        return read if filled.all() else read.among(filled, str(column.name))

    def filled_features(self, rows: TableRows, column: pd.Series) -> Features:
        """The rows of one column that have a value as features float32 [rows, d]. Raises ConfigError."""
        name = str(column.name)
        if holds_lists(column):
            vectors = stacked_lists(rows, column).reshape(len(column), -1)
            places = range(vectors.shape[1])
            check_resolution(rows.where, vectors, [f"column {name}, place {number}" for number in places])
            return Features(vectors.astype(np.float32), [f"{name}[{number}]" for number in places], "list")
        if name in self.options.categories or self.is_category(rows, column):
            texts = self.with_one_spelling(rows.where, column.astype(TEXT))
            values = np.unique(texts)
            bits = texts[:, None] == values
            names = [f"{name}={value}" for value in values]
            return Features(bits.astype(np.float32), names, "category", tuple(values.tolist()))
        numbers = (numbers_of(column) if holds_texts(column) else column.to_numpy())[:, None]
        check_resolution(rows.where, numbers, [f"column {name}"])
        with np.errstate(over="ignore"):  # `features` names what is too large
            return Features(numbers.astype(np.float32), [name], "truth" if numbers.dtype == bool else "number")

    def is_category(self, rows: TableRows, column: pd.Series) -> bool:
        """Whether a column of features is a category, and not numbers. Raises ConfigError if only the user knows."""
        name, where = str(column.name), rows.where
        numbers, is_given = holds_texts(column) and are_numbers(column), name in self.options.numbers
        if not is_given and (numbers or pd.api.types.is_numeric_dtype(column)):
            check_code_name(rows, column)
        if pd.api.types.is_numeric_dtype(column) or (is_given and has_number_categories(column)):
            return False
        if numbers and (is_given or not (self.typed or has_codes(column))):
            if not is_given:
                check_points_of_thousands(rows, column)
            return False
        counts = counts_of(column.astype(TEXT))
        if numbers and all_match(counts.index, NUMBER):
            coded = matches(counts.index, CODES.pattern)
            seen = CODES.called if coded.any() else "numbers written as text"
            raise open_decision(
                where,
                f"column {name} holds {seen}, such as {counts.index[int(coded.argmax())]!r}",
                {f"--data.numbers {name}": "numbers", f"--data.categories {name}": f"{len(counts)} categories"},
            )
        if not isinstance(column.dtype, pd.CategoricalDtype):
            check_truth(rows, column, counts)
            check_parts(rows, column, counts)
            refuse_faults(rows, column, counts)
        if is_given:
            raise ConfigError(f"data.numbers: {where}: column {name} holds texts, such as {counts.index[0]!r}")
        check_categories(rows, column, counts)
        return True

    def target(self, rows: TableRows, column: pd.Series) -> np.ndarray:
        """The target of every row: numbers, or texts as they stand there. Raises ConfigError."""
        if holds_lists(column):
            return stacked_lists(rows, column)
        if not holds_texts(column):
            return column.to_numpy() if pd.api.types.is_numeric_dtype(column) else column.astype(TEXT).to_numpy("U")
        counts = counts_of(column)
        if self.has_number_target(rows.where, column, counts):
            if column.name not in self.options.numbers:
                check_points_of_thousands(rows, column)
            return numbers_of(column)
        if column.name not in self.options.categories:
            check_truth(rows, column, counts)
        return self.with_one_spelling(rows.where, column)

    def has_number_target(self, where: str, column: pd.Series, counts: pd.Series) -> bool:
        """Whether texts of the target are read as numbers. Raises ConfigError if only the user knows."""
        if self.typed or not all_match(counts.index, NUMBER):
            return self.task not in ("auto", "classification", "binary") and are_numbers(counts.index)
        if (numbers := plain_numbers(counts.index)) is not None:
            return max(map(abs, numbers)) < 2**63
        if self.task != "auto":
            return self.task not in ("classification", "binary")
        different = numbers_of(counts.index)
        if (different % 1 == 0).all():
            return False
        if len(counts) <= FEW_VALUES and len(np.unique(different)) < len(counts):
            raise open_decision(
                where,
                f"column {column.name} writes one number in several ways, such as {counts.index[0]!r}",
                {"--task classification": "classes by their texts", "--task regression": "numbers"},
            )
        return True

    def owners(
        self, rows: TableRows, table: pd.DataFrame, user: str | None
    ) -> tuple[np.ndarray | None, tuple[str, ...]]:
        """The user of each row as text, and the users in order. Raises ConfigError."""
        if user is None:
            return None, ()
        column = table[user].astype(TEXT)
        if plain_numbers(column.unique()) is not None:
            column = column.str.removesuffix(".0")
        texts = self.with_one_spelling(rows.where, column)
        return texts, tuple(in_order(np.unique(texts).tolist()))

    def with_one_spelling(self, where: str, column: pd.Series) -> np.ndarray:
        """The values of a column, of texts each in one spelling. Raises ConfigError if only the user knows."""
        values = column.to_numpy("U") if holds_texts(column) else column.to_numpy()
        return with_one_spelling(where, f"column {column.name}", values, self.options.spelling)

    def groups_and_order(self, where: str, table: pd.DataFrame, beside: Beside) -> dict[str, np.ndarray]:
        """Numbers of groups and places in time. Raises ConfigError."""
        groups = self.with_one_spelling(where, table[beside.group]).tolist() if beside.group else None
        order = None if not beside.order else table[beside.order]
        if order is not None and holds_texts(order) and are_numbers(order):
            order = pd.Series(numbers_of(order))
        return beside.arrays(groups, None if order is None else [*order], where)


def with_plain_names(where: str, table: pd.DataFrame) -> pd.DataFrame:
    """The table with texts without blanks around them as names of its columns. Raises ConfigError."""
    renamed = table.rename(columns=lambda name: str(name).strip())
    if twice := renamed.columns[renamed.columns.duplicated()].tolist():
        raise ConfigError(f"{where}: two columns are called {twice[0]}; rename one")
    if not len(renamed):
        raise ConfigError(f"{where}: no rows in it")
    return renamed


def join_parts(
    where: str, tables: Sequence[tuple[str, pd.DataFrame]], remedy: str = ""
) -> tuple[TableRows, pd.DataFrame]:
    """Named tables as one. Raises ConfigError if their columns differ."""
    first, *others = (table for _, table in tables)
    for table in others:
        if other := sorted({*first.columns} ^ {*table.columns}):
            raise ConfigError(f"{where}: the parts have different columns: one lacks {other[0]}{remedy}")
    rows = TableRows(where, [(name, len(table)) for name, table in tables])
    return rows, pd.concat(with_common_categories([first, *others]), ignore_index=True)


def with_common_categories(tables: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """The tables with columns that are categories of numbers in one of them as such in all: joined, they stay so."""
    common = [*tables]
    for name in tables[0].columns:
        columns = [table[name] for table in tables]
        if any(map(has_number_categories, columns)) and any(column.dtype != columns[0].dtype for column in columns):
            kind = pd.CategoricalDtype(pd.concat([column.astype(object) for column in columns]).dropna().unique())
            common = [table.assign(**{name: table[name].astype(kind)}) for table in common]
    return common


def as_kind(rows: TableRows, kind: SampleKind, values: np.ndarray) -> np.ndarray:
    """float32 or int64 [rows, ...]. Raises ConfigError for numbers that do not fit."""
    if kind == "feature" and values.dtype != np.float32:
        check_channels(rows.where, values)
    return SampleReader(kind)(Item(values, None, rows.where))


def table_targets(rows: TableRows, reader: TableReader, values: np.ndarray) -> Targets:
    """The targets of all rows, as the task of a reader reads them. Raises ConfigError."""
    try:
        return refuse_count(reader.classes, read_targets(values, reader.task, reader.names, reader.classes))
    except TargetError as error:
        raise ConfigError(f"{rows.place(error.row)}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{rows.where}: {error}") from None
