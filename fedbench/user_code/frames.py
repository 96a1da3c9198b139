"""Frames in several pieces of data, whose columns belong together by name, and frames with columns of text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedbench.errors import ConfigError
from fedbench.user_code.forms import form_of, is_masked, is_table, shape_of
from fedbench.user_code.third_value import check_kind, check_users

PLACES = ("samples", "targets", "users")
"""What arrays hold by their place."""
OWN_COLUMN = "a column user of the frame"


class Named(NamedTuple):
    """The names of a frame's columns, and the piece that it is in."""

    names: list[str]
    where: str


def with_columns_by_name(where: str, piece: Any, first: dict[str, Named]) -> Any:
    """A piece (X, y), (X, y, users) or dict of columns, its frames with their columns in the order of the first ones.

    first: those of earlier pieces, to which this one adds. Raises ConfigError for frames with other columns, and for
    frames whose rows are in another order than those of the samples.
    """
    if form_of(piece) not in ("arrays", "columns"):
        return piece
    columns = {**piece} if isinstance(piece, Mapping) else dict(zip(PLACES, piece, strict=False))
    _check_rows(where, columns)
    ordered = {
        what: _with_order(where, what, column, first) if is_table(column) else column
        for what, column in columns.items()
    }
    if all(ordered[what] is column for what, column in columns.items()):
        return piece
    return ordered if isinstance(piece, Mapping) else tuple(ordered.values())


def holds_more_than_numbers(table: Any) -> bool:
    """Whether a table of pandas has columns that are neither numbers nor truth values."""
    from pandas.api.types import is_numeric_dtype

    return not all(map(is_numeric_dtype, table.dtypes))


def has_several_targets(piece: Sequence[Any]) -> bool:
    """Whether the second of the arrays (X, y) holds several values for each row."""
    return len(shape := shape_of(piece[1])) > 1 and shape[1] > 1


def check_third_columns(pieces: Sequence[tuple[Any, ...]]) -> None:
    """Raises ConfigError if the third of the arrays (X, y, users), of which X is a frame, may be something else."""
    third = [piece[2] for piece in pieces if len(piece) == len(PLACES)]
    if not third or not len(third[0]) or any(map(is_masked, third)):
        return
    users = [[user.item() if hasattr(user, "item") else user for user in _values(column)] for column in third]
    check_kind("data", users[0][0], OWN_COLUMN)
    check_users("data", [user for column in users for user in column], len(users[0]), OWN_COLUMN)


def has_plain_names(table: Any) -> bool:
    """Whether the columns of a table have names, each another one."""
    names = [str(name).strip() for name in table.columns]
    return getattr(table.columns, "nlevels", 1) == 1 and all(names) and len({*names}) == len(names)


def join_columns(part: str, samples: Any, target: Any, users: Any = None) -> Any:
    """One table of samples, with their target as `label` and their users as `user`. Raises ConfigError."""
    added = {"label": target} | ({} if users is None else {"user": users})
    for key, values in added.items():
        if len(values) != len(samples):
            raise ConfigError(
                f"data, {part} items: {len(samples)} rows of samples and {len(values)} rows of {key}s; "
                "all must have the same number"
            )
        if key in samples.columns:
            raise ConfigError(
                f"data: the samples have a column {key}, and it is not the {key}; rename it, or pass one table"
            )
        if has_several_targets((samples, values)):
            raise ConfigError(
                f"data: the samples are a table with columns of text, which takes one {key} per row, not "
                f"{shape_of(values)[1]}; encode these columns as numbers"
            )
        if is_masked(values):
            raise ConfigError(f"data, {part} items: the {key}s have masked values; fill them in, or leave the rows out")
    return samples.assign(**{key: _values(values) for key, values in added.items()})


def _values(column: Any) -> list[Any]:
    """The values of a column of any kind."""
    rows = column.to_numpy() if hasattr(column, "to_numpy") else column
    if hasattr(rows, "detach"):  # a tensor, whose entries are tensors
        rows = rows.detach().cpu().numpy()
    return [*(rows.ravel() if hasattr(rows, "ravel") else rows)]


def _with_order(where: str, what: str, frame: Any, first: dict[str, Named]) -> Any:
    """A frame with its columns in the order of the first one. Raises ConfigError if they have other names."""
    names = [str(name).strip() for name in frame.columns]
    known = first.setdefault(what, Named(names, where))
    if names == known.names:
        return frame
    missing, extra = ([name for name in a if name not in b] for a, b in ((known.names, names), (names, known.names)))
    if missing or extra:
        lack = [f"lack {', '.join(missing)}"] if missing else []
        have = [f"have {', '.join(extra)} besides"] if extra else []
        raise ConfigError(
            f"data: in {where} the columns of {what} {' and '.join(lack + have)}, unlike in {known.where}; name them "
            "alike, or pass arrays (.to_numpy()), which go by position"
        )
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"data: in {where} two columns of {what} are called {twice}; rename one")
    return frame[[frame.columns[names.index(name)] for name in known.names]]


def _check_rows(where: str, columns: Mapping[str, Any]) -> None:
    """Raises ConfigError if columns of pandas have the same index in different orders."""
    indexed = [(what, column.index) for what, column in columns.items() if hasattr(column, "iloc")]
    for what, index in indexed[1:]:
        known, first = indexed[0]
        if index.equals(first) or not (index.is_unique and first.is_unique):
            continue
        if {*index} == {*first}:
            raise ConfigError(
                f"data: in {where} {known} and {what} have the same index in different orders; sort them alike (.loc), "
                "or pass arrays (.to_numpy()), which go by position"
            )
