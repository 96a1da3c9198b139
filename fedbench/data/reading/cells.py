"""The cells of a table: of which types they are, and which cannot be read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from fedbench.data.reading.targets import FEW_VALUES, piece_of
from fedbench.data.reading.texts import (
    MISSING,
    NO_NUMBER,
    NUMBER,
    TRUTH,
    all_match,
    are_numbers,
    clean,
    counts_of,
    form_of,
    have_points_of_thousands,
    is_mostly_numbers,
    matches,
)
from fedbench.data.sentinels import sentinel_text
from fedbench.errors import ConfigError, open_decision
from fedbench.tasks.class_numbers import NAMES_SHOWN, first_of
from fedbench.user_code.parts import PARTS

CELLS = (str, Number, np.generic, np.ndarray, list)
"""Types of cells that can be read."""
TOTAL = re.compile(r"((grand |sub-?)?totals?|sum|mean|average|gesamt|summe)", re.IGNORECASE)
"""Texts in a row at the end of a table that sums up the others."""
BIT = r"[01](\.0*)?"
"""Texts of 0 and 1."""
CODE_NAME = re.compile(
    r"(^|[\W_])(zip|zip_?codes?|post_?codes?|postal_?codes?|plz|icd(_?(9|10))?|drg|cpt|atc|fips|naics|codes?)$"
    r"|[a-z](?-i:Code|Zip)$",
    re.IGNORECASE,
)
"""Names of columns whose numbers are names of something, and no measurements."""
TOKEN_NAMES = ("input_ids", "token_ids", "tokens")
"""Usual names of columns of tokens."""
MOST_CATEGORIES = 50
"""Maximum number of different values of a text column read as categories."""


@dataclass(frozen=True)
class TableRows:
    """The places of rows of the combined table. files: name and number of rows of each."""

    where: str
    files: list[tuple[str, int]]

    def place(self, row: int) -> str:
        """The row as a reader counts, from 1 and without the header line."""
        name, local = piece_of(self.files, row)
        return f"{self.where}{f'/{name}' if len(self.files) > 1 else ''}, row {local + 1}"


def looks_like_numbers(column: pd.Series) -> bool:
    return are_numbers(clean(column.dropna())) if holds_texts(column) else not holds_lists(column)


def holds_texts(column: pd.Series) -> bool:
    """Whether all values of a column are texts, and it is not declared as one of categories."""
    return bool(pd.api.types.is_string_dtype(column.dropna() if column.dtype == object else column.dtype))


def has_number_categories(column: pd.Series) -> bool:
    """Whether a column is declared as one of categories, which are numbers."""
    kind = column.dtype
    return isinstance(kind, pd.CategoricalDtype) and bool(pd.api.types.is_numeric_dtype(kind.categories))


def with_clean_texts(column: pd.Series) -> pd.Series:
    """A column whose texts are clean, and missing where numbers or truth values are marked as missing."""
    if not holds_texts(column):
        return column
    texts = clean(column)
    marked = texts.isin(NO_NUMBER)
    if not marked.any():
        return texts
    values = texts[~marked].dropna()
    return texts.mask(marked) if all_match(values, NUMBER) or all_match(values, TRUTH) else texts


def with_float_columns(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of Python numbers, such as the decimals of a database, as columns of numbers."""
    table = table.infer_objects()
    for name in filter(lambda name: pd.api.types.is_object_dtype(table[name]), table.columns):
        values = table[name].dropna()
        if len(values) and all(isinstance(value, Number) for value in values):
            table = table.assign(**{name: table[name].where(table[name].notna(), np.nan).astype(float)})
    return table


def refuse_bytes(rows: TableRows, column: pd.Series, remedy: str) -> None:
    """Raises ConfigError for bytes, also as categories or in a type of Arrow."""
    kind = column.dtype
    if pd.api.types.is_numeric_dtype(kind) or isinstance(kind, pd.StringDtype):
        return
    values = kind.categories if isinstance(kind, pd.CategoricalDtype) else column.dropna()
    if any(isinstance(value, bytes) for value in values):
        raise ConfigError(
            f"{rows.where}: column {column.name} holds bytes; turn the column into numbers or text beforehand{remedy}"
        )


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
    kinds = cells.map(cell_kind)
    if kinds.nunique() > 1:
        first, second = kinds.unique()[:2]
        some = " and ".join(repr(cells[kinds == kind].iloc[0]) for kind in (first, second))
        raise ConfigError(
            f"{rows.where}: column {column.name} holds {first}s and {second}s, {some}; write one kind{remedy}"
        )


def cell_kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "list" if isinstance(value, np.ndarray | list) else "number"


def check_missing(rows: TableRows, columns: Mapping[str, pd.Series], features: list[str], imputed: bool) -> None:
    """Raises ConfigError for missing values, with their number in every column.

    imputed: whether features may lack some; columns of lists may not, and at least one row must have a value.
    """
    counts = {name: int(missing.sum()) for name, column in columns.items() if (missing := column.isna()).any()}
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


def check_codes(rows: TableRows, column: pd.Series, what: str) -> None:
    """Raises ConfigError for the usual texts for missing values in a column of names. what: a name is.

    Where the text + stands too, - is its opposite.
    """
    if not holds_texts(column):
        return
    counts = counts_of(column)
    coded = counts.index.isin(MISSING) & ~((counts.index == "-") & ("+" in counts.index))
    if not coded.any() or len(counts) == 1:
        return
    text, number = str(counts.index[int(coded.argmax())]), int(counts[coded].sum())
    raise ConfigError(
        f"{rows.place(int((column == text).to_numpy().argmax()))}: {text!r} in column {column.name} ({number} such "
        f"rows): leave these rows out if a value is missing there, or --data.categories {column.name} if it is {what}"
    )


def check_code_name(rows: TableRows, column: pd.Series) -> None:
    """Raises ConfigError for several numbers that repeat in a column that has the name of codes.

    Only codes of diseases have decimals, such as 250.01.
    """
    name = str(column.name)
    if not CODE_NAME.search(name):
        return
    count, numbers = column.nunique(), column.astype(float)
    if 2 < count < column.count() and ("icd" in name.casefold() or not (numbers % 1).any()):
        few = {f"--data.categories {name}": f"{count} categories"} if count <= MOST_CATEGORIES else {}
        choices = {f"--data.numbers {name}": "numbers", **few, f"--data.drop {name}": "neither"}
        raise open_decision(rows.where, f"column {name} has the name of codes and holds numbers", choices)


def check_truth(rows: TableRows, column: pd.Series, counts: pd.Series) -> None:
    """Raises ConfigError for truth values as texts in some rows and as 0 and 1 in others."""
    truth, bits = (matches(counts.index, form) for form in (TRUTH, BIT))
    if truth.any() and bits.any() and (truth | bits).all():
        some = " and ".join(repr(counts.index[int(kind.argmax())]) for kind in (truth, bits))
        raise ConfigError(f"{rows.where}: column {column.name} holds {some}; write truth values in one way")


def check_parts(rows: TableRows, column: pd.Series, counts: pd.Series) -> None:
    """Raises ConfigError for a column that says whether a row is for training, validation or testing."""
    parts = [PARTS.get(text.casefold()) for text in counts.index]
    if None not in parts and len({*parts}) > 1:
        raise open_decision(
            rows.where,
            f"column {column.name} says {' and '.join(map(repr, counts.index[:3]))}",
            {
                "bring the parts apart, such as train.csv and test.csv in a folder": "the split to keep",
                f"--data.drop {column.name}": "a split that is drawn anew",
                f"--data.categories {column.name}": "a feature",
            },
        )


def check_tokens(rows: TableRows, columns: Mapping[str, pd.Series]) -> None:
    """Raises ConfigError for lists of whole numbers that have the name of tokens, beside other columns."""
    name = next((name for name in columns if name in TOKEN_NAMES and holds_lists(columns[name])), None)
    if name is None or any(np.asarray(value).dtype.kind not in "iu" for value in columns[name].iloc[:1]):
        return
    others = ",".join(other for other in columns if other != name)
    raise open_decision(
        rows.where,
        f"column {name} holds lists of whole numbers, beside {others}",
        {
            f"--data.drop {others}": "tokens, which are the sample alone",
            "bring a data set whose items are dicts": "tokens, and a model that takes all of them",
            f"--data.numbers {name}": "amounts",
        },
    )


def check_totals(rows: TableRows, column: pd.Series) -> None:
    """Raises ConfigError if the last row of a file has a text like Total in a column, and no other row has it."""
    lasts = np.cumsum([size for _, size in rows.files]) - 1
    if not holds_texts(column) or not len(lasts):
        return
    for last in lasts:
        text = str(column.iloc[last])
        if TOTAL.fullmatch(text) and (column == text).sum() == (column.iloc[lasts] == text).sum():
            raise open_decision(
                rows.place(last),
                f"{text!r} in column {column.name}, in the last row",
                {
                    "leave this row out": "a summary of the other rows",
                    f"--data.categories {column.name}": "a row like the others",
                },
            )


def check_categories(rows: TableRows, column: pd.Series, counts: pd.Series) -> None:
    """Raises ConfigError for more texts than a category has, and for those that hardly repeat."""
    are_many, is_declared = len(counts) > MOST_CATEGORIES, isinstance(column.dtype, pd.CategoricalDtype)
    if are_many or (len(column) < 2 * len(counts) and len(counts) > FEW_VALUES and not is_declared):
        why = f"more than the {MOST_CATEGORIES} of a category" if are_many else f"in {len(column)} rows"
        raise ConfigError(
            f"{rows.where}: column {column.name} holds {len(counts)} different texts, such as "
            f"{str(column.iloc[0])[:30]!r}, {why}; turn it into numbers beforehand, or --data.drop {column.name}, or "
            f"--data.categories {column.name}"
        )


def check_points_of_thousands(rows: TableRows, column: pd.Series) -> None:
    """Raises ConfigError if the numbers of a column, which are texts, may have points that separate thousands."""
    if have_points_of_thousands(column):
        pointed = column[column.str.contains(".", regex=False)]
        raise open_decision(
            rows.where,
            f"column {column.name} holds {pointed[pointed.str.endswith('0')].iloc[0]!r} beside "
            f"{column.drop(pointed.index).iloc[0]!r}",
            {f"--data.numbers {column.name}": "decimals", "write them without points": "thousands"},
        )


def check_sentinels(rows: TableRows, numbers: Mapping[str, np.ndarray]) -> None:
    """Raises ConfigError if the least or greatest number of columns [rows] may stand for a missing value.

    numbers: by the names of the columns, missing where not finite.
    """
    seen = {name: line for name, column in numbers.items() if (line := sentinel_text(column[np.isfinite(column)]))}
    if seen:
        several = [f"column {name} holds {line}" for name, line in seen.items()]
        raise open_decision(
            rows.where,
            first_of(several),
            {
                f"--data.numbers {','.join(seen)}": "a number",
                "empty these cells, with --data.impute median": "a missing value",
            },
        )


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
