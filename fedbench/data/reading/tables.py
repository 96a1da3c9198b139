"""Tables: a row per sample, a target column, and optionally a user column.

Numbers are features, truth values 0 and 1; texts are categories, with a feature per value, unless they are numbers in
another form (`texts.py` has the table). A column of lists of one length holds a vector per row: alone it is the sample,
of tokens if its numbers are whole; beside others its numbers are features.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Number
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from fedbench.data.cache import Block, Content
from fedbench.data.description import Decision, open_decision
from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.data.reading.images import Item
from fedbench.data.reading.items import DOMAIN_KEYS, TARGETS, check_channels, domain_numbers, find_key, key_of
from fedbench.data.reading.resolution import check_resolution
from fedbench.data.reading.samples import SampleKind, SampleReader
from fedbench.data.reading.spelling import SpellingOption, spelling_decision, with_one_spelling
from fedbench.data.reading.targets import FEW_VALUES, piece_of, read_targets
from fedbench.data.reading.texts import (
    CODES,
    NO_NUMBER,
    NUMBER,
    TEXT,
    all_match,
    are_numbers,
    clean,
    counts_of,
    form_of,
    has_codes,
    is_mostly_numbers,
    matches,
    numbers_of,
)
from fedbench.data.unseen import unseen_features
from fedbench.errors import ConfigError
from fedbench.tasks.class_numbers import NAMES_SHOWN, in_order, plain_numbers
from fedbench.tasks.targets import TargetError, Targets

CELLS = (str, Number, np.generic, np.ndarray, list)
"""Types of cells that can be read."""
MOST_CATEGORIES = 50
"""Maximum number of different values of a text column read as categories."""
FEW_ROWS = 10
"""Up to so many rows a column may count them by chance."""
INDEX = ("Unnamed:", "__index_level_")
"""How the names of columns begin that pandas writes for an index without a name."""
AXES = ("x", "z")
"""Names beside which `y` may be a measurement."""


class TableOptions(SpellingOption):
    label: str | None = Field(None, description="target column (default: the one that looks like it)")
    user: str | None = Field(
        None, description="column with the user of each row (default: the one that looks like it, if any)"
    )
    drop: list[str] = Field([], description="columns to omit")
    numbers: list[str] = Field([], description="columns that are numbers, whatever they look like")
    categories: list[str] = Field([], description="columns that are categories, whatever they look like")
    impute: Literal["none", "median"] = Field(
        "none",
        description="missing values of features: refused, or the median of the client's training samples (of texts a "
        "category of their own), with a column of 0 and 1 for what was missing",
    )


class Roles(NamedTuple):
    """The names of columns by what they are. features: in their order; out: left out."""

    label: str
    user: str | None
    beside: Beside
    features: list[str]
    out: list[str]

    @property
    def read(self) -> list[str]:
        return [*dict.fromkeys(filter(None, [self.label, self.user, *self.beside, *self.features]))]


class Features(NamedTuple):
    """The features of one column, [rows, d], and their names. category: whether they are one per text.

    void: how many rows have none; the last feature tells them.
    """

    values: np.ndarray
    names: list[str]
    category: bool = False
    void: int = 0

    def among(self, filled: np.ndarray, name: str) -> "Features":
        """Those of a column with void rows too, NaN there, or 0 of a category. filled: bool [rows]; name: of it."""
        values = np.full((len(filled), len(self.names) + 1), 0 if self.category else np.nan, np.float32)
        values[filled, :-1] = self.values
        values[:, -1] = ~filled
        return Features(values, [*self.names, f"{name} missing"], self.category, int((~filled).sum()))


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
        """sizes: rows of train, val and test, in this order; without a test part the table has one.

        Raises ConfigError.
        """
        whole = with_float_columns(whole)
        roles = self.roles(rows.where, whole)
        table = self.cells(rows, whole, roles)
        train = len(table) - sizes.get("test", 0)
        samples, read = self.samples(rows, table, roles)
        targets = self.target(rows, table[roles.label])
        owners, owner_names = self.owners(rows, table, roles.user)
        columns = tuple(name for own in read.values() for name in own.names)
        remarks = [*remarks_on_samples(self, roles, samples, read)]
        return Content(
            train,
            len(table) - train,
            [Block(samples, targets, owners)],
            categories=True,
            numbers=tuple(self.options.numbers),
            columns=columns,
            kind=self.kind,
            warnings=(*remarks, *unseen_features(samples, columns, *np.split(np.arange(len(table)), [train]))),
            void=tuple(np.flatnonzero(np.isnan(samples).any(0)).tolist()) if read else (),
            val=sizes.get("val", 0),
            targets=partial(table_targets, rows, self),
            domains=partial(domain_numbers, owner_names),
            one_part="test" not in sizes,
            beside=partial(self.groups_and_order, rows.where, table, roles.beside),
            decisions=partial(decisions_on, self.options, roles, read),
        )

    def roles(self, where: str, table: pd.DataFrame) -> Roles:
        """What each column is. Raises ConfigError."""
        options, names = self.options, [*table.columns]
        label, user = columns_of(where, table, options)
        if user is None and self.owner not in (label, *options.drop, *options.numbers, *options.categories):
            user = self.owner
        for key in ("drop", "numbers", "categories"):
            if unknown := [name for name in getattr(options, key) if name not in names]:
                raise ConfigError(f"data.{key}: {where} has no column {unknown[0]!r}")
        if both := [name for name in options.numbers if name in options.categories]:
            raise ConfigError(f"data.numbers, data.categories: column {both[0]} is in both; leave it out of one")
        beside = self.beside.among(names, where, "column")
        if label in beside:
            raise ConfigError(f"{beside.first_key}: column {label} is the target; name another")
        out = [name for name in names if (name.startswith(INDEX) or name in options.drop) and name not in beside]
        features = [name for name in names if name not in (label, user, *beside, *out)]
        return Roles(label, user, beside, features, out)

    def cells(self, rows: TableRows, table: pd.DataFrame, roles: Roles) -> pd.DataFrame:
        """The columns to read, with clean texts. Raises ConfigError for cells of other types, and missing ones."""
        found = {}
        for name in roles.read:
            if name in roles.features or name == roles.label:
                check_cells(rows, table[name], remedy=f", or --data.drop {name}" if name in roles.features else "")
            found[name] = with_clean_texts(table[name])
        check_missing(rows, found, roles.features, self.options.impute == "median")
        return pd.DataFrame(found)

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
        read = {name: self.features(rows, table[name]) for name in roles.features}
        samples = np.concatenate([own.values for own in read.values()], axis=1)
        return (as_kind(rows, self.kind, samples) if self.kind == "token" else samples), read

    def features(self, rows: TableRows, column: pd.Series) -> Features:
        """One column as features float32 [rows, d]. Raises ConfigError."""
        filled = column.notna().to_numpy(bool)
        read = self.filled_features(rows, column if filled.all() else column[filled])
        wrong = np.argwhere(~np.isfinite(read.values))
        if len(wrong):
            raise ConfigError(
                f"{rows.place(column.index[filled][wrong[0][0]])}: a value that is not finite in column {column.name}; "
                "fill it in or leave the row out"
            )
        return read if filled.all() else read.among(filled, str(column.name))

    def filled_features(self, rows: TableRows, column: pd.Series) -> Features:
        """The rows of one column that have a value as features float32 [rows, d]. Raises ConfigError."""
        name = str(column.name)
        if holds_lists(column):
            vectors = stacked_lists(rows, column).reshape(len(column), -1)
            places = range(vectors.shape[1])
            check_resolution(rows.where, vectors, [f"column {name}, place {place}" for place in places])
            return Features(vectors.astype(np.float32), [f"{name}[{place}]" for place in places])
        if name in self.options.categories or self.is_category(rows, column):
            texts = self.with_one_spelling(rows.where, column.astype(TEXT))
            values = np.unique(texts)
            bits = texts[:, None] == values
            return Features(bits.astype(np.float32), [f"{name}={value}" for value in values], category=True)
        numbers = (numbers_of(column) if holds_texts(column) else column.to_numpy())[:, None]
        check_resolution(rows.where, numbers, [f"column {name}"])
        return Features(numbers.astype(np.float32), [name])

    def is_category(self, rows: TableRows, column: pd.Series) -> bool:
        """Whether a column of features is a category, and not numbers. Raises ConfigError if only the user knows."""
        name, where = str(column.name), rows.where
        if pd.api.types.is_numeric_dtype(column):
            return False
        numbers, said = holds_texts(column) and are_numbers(column), name in self.options.numbers
        if numbers and (said or not (self.typed or has_codes(column))):
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
            refuse_faults(rows, column, counts)
        if said:
            raise ConfigError(f"data.numbers: {where}: column {name} holds texts, such as {counts.index[0]!r}")
        check_categories(rows, column, counts)
        return True

    def target(self, rows: TableRows, column: pd.Series) -> np.ndarray:
        """The target of every row: numbers, or texts as they stand there. Raises ConfigError."""
        if holds_lists(column):
            return stacked_lists(rows, column)
        if not holds_texts(column):
            return column.to_numpy() if pd.api.types.is_numeric_dtype(column) else column.astype(TEXT).to_numpy("U")
        texts = self.with_one_spelling(rows.where, column)
        return numbers_of(texts) if self.has_number_target(rows.where, column, counts_of(texts)) else texts

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
    found = table.rename(columns=lambda name: str(name).strip())
    if twice := found.columns[found.columns.duplicated()].tolist():
        raise ConfigError(f"{where}: two columns are called {twice[0]}; rename one")
    if not len(found):
        raise ConfigError(f"{where}: no rows in it")
    return found


def join_parts(
    where: str, tables: Sequence[tuple[str, pd.DataFrame]], remedy: str = ""
) -> tuple[TableRows, pd.DataFrame]:
    """Named tables as one. Raises ConfigError if their columns differ."""
    first, *others = (table for _, table in tables)
    for table in others:
        if other := sorted({*first.columns} ^ {*table.columns}):
            raise ConfigError(f"{where}: the parts have different columns: one lacks {other[0]}{remedy}")
    rows = TableRows(where, [(name, len(table)) for name, table in tables])
    return rows, pd.concat([first, *others], ignore_index=True)


def columns_of(where: str, table: pd.DataFrame, options: TableOptions) -> tuple[str, str | None]:
    """The columns of target and user. Raises ConfigError."""
    names = [name for name in table.columns if name not in options.drop]
    hint = " (and --data.drop the other, unless it is a feature)"
    user = find_key("user", options.user, DOMAIN_KEYS, names, where, hint, "column")
    label = key_of("label", options.label, TARGETS, names, where, hint, "column")
    axes = [name for name in AXES if name in names and looks_like_numbers(table[name])]
    others = [name for name in names if name not in (label, user, *axes)]
    if label == "y" and not options.label and axes and others and looks_like_numbers(table[label]):
        other = next((name for name in others if not looks_like_numbers(table[name])), others[0])
        raise open_decision(
            where,
            f"column y stands beside {' and '.join(axes)}",
            {"--data.label y": "the target", f"--data.label {other}": f"a measurement, and {other} is the target"},
        )
    return label, user


def looks_like_numbers(column: pd.Series) -> bool:
    return are_numbers(clean(column.dropna())) if holds_texts(column) else not holds_lists(column)


def holds_texts(column: pd.Series) -> bool:
    """Whether all values of a column are texts, and it is not declared as one of categories."""
    return bool(pd.api.types.is_string_dtype(column.dropna() if column.dtype == object else column.dtype))


def with_clean_texts(column: pd.Series) -> pd.Series:
    """A column whose texts are clean, and missing where numbers are marked as missing."""
    if not holds_texts(column):
        return column
    texts = clean(column)
    marked = texts.isin(NO_NUMBER)
    return texts.mask(marked) if marked.any() and all_match(texts[~marked].dropna(), NUMBER) else texts


def with_float_columns(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of Python numbers, such as the decimals of a database, as columns of numbers."""
    table = table.infer_objects()
    for name in filter(lambda name: pd.api.types.is_object_dtype(table[name]), table.columns):
        values = table[name].dropna()
        if len(values) and all(isinstance(value, Number) for value in values):
            table = table.assign(**{name: table[name].astype(float)})
    return table


def check_cells(rows: TableRows, column: pd.Series, remedy: str) -> None:
    """Raises ConfigError for times, complex numbers, and what is no number, text or list."""
    kind = column.dtype
    if getattr(kind, "kind", "") in "mM" or isinstance(kind, pd.PeriodDtype):
        raise ConfigError(
            f"{rows.where}: column {column.name} holds times ({kind}); turn them into numbers beforehand, such as the "
            f"days since a start{remedy}"
        )
    if getattr(kind, "kind", "") == "c":
        raise ConfigError(
            f"{rows.where}: column {column.name} holds complex numbers; write a column of the real and one of the "
            f"imaginary parts{remedy}"
        )
    if not pd.api.types.is_object_dtype(kind):
        return
    cells = column.dropna()
    for row, value in zip(np.flatnonzero(column.notna()).tolist(), cells, strict=False):
        if not isinstance(value, CELLS):
            raise ConfigError(
                f"{rows.place(row)}: column {column.name} holds a {type(value).__name__}; turn the column into numbers "
                f"or text beforehand{remedy}"
            )
    texts = cells.map(lambda value: isinstance(value, str))
    if texts.any() and not texts.all():
        some = " and ".join(repr(cells[texts == text].iloc[0]) for text in (False, True))
        raise ConfigError(f"{rows.where}: column {column.name} holds numbers and texts, {some}; write one kind{remedy}")


def check_missing(rows: TableRows, columns: Mapping[str, pd.Series], features: list[str], imputed: bool) -> None:
    """Raises ConfigError for missing values, with their number in every column.

    imputed: whether features may lack some; columns of lists may not, and at least one row must have a value.
    """
    counts = {name: int(missing.sum()) for name, own in columns.items() if (missing := own.isna()).any()}
    fillable = [
        name
        for name, count in counts.items()
        if name in features and count < len(columns[name]) and not holds_lists(columns[name].dropna())
    ]
    if imputed:
        counts = {name: count for name, count in counts.items() if name not in fillable}
    if not counts:
        return
    first = int(columns[next(iter(counts))].isna().to_numpy().argmax())
    several = ", ".join(f"{name} ({count} such rows)" for name, count in [*counts.items()][:NAMES_SHOWN])
    more = f" and {len(counts) - NAMES_SHOWN} more columns" if len(counts) > NAMES_SHOWN else ""
    drop = [name for name in counts if name in features]
    remedy = f", or --data.drop {','.join(drop[:NAMES_SHOWN])}" if drop else ""
    if fillable and not imputed:
        remedy += f", or --data.impute median{' for the features' * (len(drop) < len(counts))}"
    raise ConfigError(
        f"{rows.place(first)}: no value in column {several}{more}; fill them in or leave these rows out{remedy}"
    )


def refuse_faults(rows: TableRows, column: pd.Series, counts: pd.Series) -> None:
    """Raises ConfigError for texts most of which are numbers, dates or several values."""
    name, form = column.name, form_of(counts)
    otherwise = f", or --data.drop {name}, or --data.categories {name} if each of the {len(counts)} texts is a category"
    if form:
        raise ConfigError(
            f"{rows.where}: column {name} holds {form[0].called}, such as {form[1]!r}; {form[0].remedy}{otherwise}"
        )
    if is_mostly_numbers(counts):
        numbers = counts.index[matches(counts.index, NUMBER)]
        wrong = np.flatnonzero(~column.isin(numbers))
        raise ConfigError(
            f"{rows.place(column.index[wrong[0]])}: {column.iloc[wrong[0]]!r} in column {name}, which holds numbers "
            f"otherwise ({len(wrong)} such rows); fill them in or leave these rows out{otherwise}"
        )


def check_categories(rows: TableRows, column: pd.Series, counts: pd.Series) -> None:
    """Raises ConfigError for more texts than a category has."""
    if len(counts) > MOST_CATEGORIES:
        raise ConfigError(
            f"{rows.where}: column {column.name} holds {len(counts)} different texts, such as "
            f"{str(column.iloc[0])[:30]!r}, more than the {MOST_CATEGORIES} of a category; turn it into numbers "
            f"beforehand, or --data.drop {column.name}, or --data.categories {column.name}"
        )


def remarks_on_samples(
    reader: TableReader, roles: Roles, samples: np.ndarray, read: dict[str, Features]
) -> Iterator[str]:
    """How features were read, where there was a choice."""
    if reader.kind is None and samples.dtype.kind in "iu":
        name = roles.features[0]
        yield f"column {name} holds lists of whole numbers, which are tokens; --data.kind feature for counts"
    for name, own in read.items():
        if own.names == [name] and not own.category and counts_rows(own.values[:, 0]):
            yield f"column {name} counts the rows and is a feature; --data.drop {name} if it is none"


def counts_rows(numbers: np.ndarray) -> bool:
    """Whether numbers go up by one from 0 or 1, in more rows than do so by chance."""
    return len(numbers) > FEW_ROWS and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())


def decisions_on(
    options: TableOptions, roles: Roles, read: dict[str, Features], targets: Targets
) -> Iterator[Decision]:
    """How the columns were read."""
    how: Callable[[object], Literal["given", "certain"]] = lambda asked: "given" if asked else "certain"  # noqa: E731
    yield Decision("targets", f"column {roles.label} is the target", how(options.label), "data.label", roles.label)
    if roles.user:
        yield Decision("clients", f"column {roles.user} is the user", how(options.user), "data.user", roles.user)
    for key in ("numbers", "categories"):
        names = [name for name, own in read.items() if own.category == (key == "categories")]
        given = [name for name in names if name in getattr(options, key)]
        if given:
            said = f"{columns_text(with_category_counts(given, read), 'holds', 'hold')} {key}"
            yield Decision("samples", said, "given", f"data.{key}", given)
        if others := [name for name in names if name not in given]:  # no key: it would say that these are no codes
            yield Decision("samples", f"{columns_text(with_category_counts(others, read), 'holds', 'hold')} {key}")
    if not read:
        yield Decision("samples", f"column {roles.features[0]} is the sample")
    if out := [name for name in roles.out if name not in options.drop]:
        yield Decision(
            "samples",
            f"{columns_text(out, 'is', 'are')} left out, as an index without a name",
            "certain",
            "data.drop",
            out,
        )
    if options.drop:
        yield Decision(
            "samples", f"{columns_text(options.drop, 'is', 'are')} left out", "given", "data.drop", options.drop
        )
    if void := {name: own for name, own in read.items() if own.void}:
        yield imputing(void, options.impute)
    if options.spelling:
        yield spelling_decision(options.spelling)


def imputing(void: Mapping[str, Features], impute: str) -> Decision:
    """How missing values are filled. void: the features of columns that lack some."""
    numbers, texts = (
        [f"{name} ({own.void})" for name, own in void.items() if own.category == category] for category in (False, True)
    )
    said = [f"missing values of {columns_text(numbers, 'are', 'are')} the median of the client's training samples"]
    said = said * bool(numbers)
    if texts:
        said.append(f"missing values of {columns_text(texts, 'are', 'are')} a category")
    return Decision("samples", ", ".join([*said, "with a column of 0 and 1 each"]), "given", "data.impute", impute)


def with_category_counts(names: Sequence[str], read: dict[str, Features]) -> list[str]:
    """The names of columns, with the number of their categories."""
    return [f"{name} ({len(read[name].names)})" if read[name].category else name for name in names]


def columns_text(names: Sequence[str], one: str, several: str) -> str:
    """`column a is`, or `columns a, b are`, with these verbs."""
    shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
    return f"column {shown} {one}" if len(names) == 1 else f"columns {shown} {several}"


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


def table_targets(rows: TableRows, reader: TableReader, values: np.ndarray) -> Targets:
    """Raises ConfigError."""
    try:
        return read_targets(values, reader.task, reader.names, reader.classes)
    except TargetError as error:
        raise ConfigError(f"{rows.place(error.row)}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{rows.where}: {error}") from None
