"""Finds the parts of data that a user passes as an object, and the clients of each: `parts_of`.

A part is a table, columns, or items by number (`form_of`). A list or dict of parts of one form holds a part for each
client.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from numpy.lib.npyio import NpzFile

from fedbench.errors import ConfigError, open_decision
from fedbench.user_code.data_module import collate_of, is_loader, loaders_of, loading_of
from fedbench.user_code.forms import (
    are_columns,
    are_four_arrays,
    are_tables_alike,
    form_of,
    is_column,
    is_foreign_table,
    is_grouped,
    is_stream,
    is_table,
    shape_of,
)
from fedbench.user_code.frames import (
    Named,
    check_third_columns,
    has_plain_names,
    has_several_targets,
    holds_more_than_numbers,
    join_columns,
    with_columns_by_name,
)
from fedbench.user_code.third_value import ONE_TARGET

NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
"""What keys, folders and splits of a part are called; the first of several counts."""
PARTS = {name: part for part, names in NAMES.items() for name in names}
IN_ORDER = {2: ("train", "test"), 3: ("train", "val", "test")}
"""Parts of a tuple or list by its length."""
LEGAL = (
    "(X, y), (X, y, users) or (X_train, y_train, X_test, y_test) of arrays, a map-style Dataset, a dict of columns, a "
    "pandas DataFrame, a dict of these by part (train, test) or by client, a list of these by client, a DatasetDict or "
    "a LightningDataModule is understood, and so are a name and a function"
)


class ByClient(dict[str, Any]):
    """A part that consists of a part for each client, by the clients' names."""


JOINED = ("label", "user")
"""The columns of y and users, in this order, that are joined to a frame X."""
Collate = Callable[[list[Any]], Any]
"""The function that makes batches of items."""


class ObjectParts(NamedTuple):
    """parts: train, and perhaps val and test, in this order. collate: the function of a data module's loaders.

    loading: the size of the batches of its training loader, and whether their order is random. joined: `label` and
    perhaps `user`, the columns of y and users where they were joined to frames X.
    """

    parts: dict[str, Any]
    collate: Collate | None = None
    loading: tuple[int | None, bool] | None = None
    joined: tuple[str, ...] = ()


class SectionKeys(NamedTuple):
    """The keys `data.task` and `data.user` that stand beside the object."""

    task: str = "auto"
    user: str | None = None


NO_KEYS = SectionKeys()


def parts_of(value: Any, keys: SectionKeys = NO_KEYS) -> ObjectParts:
    """The parts of data that are an object: train, and perhaps val and test, in this order; and how to make batches.

    Raises ConfigError.
    """
    if hasattr(value, "prepare_data") and hasattr(value, "train_dataloader"):
        loaders = loaders_of(value)
        parts = _in_order({part: loader.dataset for part, loader in loaders.items()}, keys)
        return ObjectParts(parts, collate_of(value, loaders), loading_of(loaders["train"]))
    return _as_tables(with_one_order(_find_parts(_with_known_forms(value), keys)))


def with_one_order(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts with the columns of frames in the order of the first part or client, by name. Raises ConfigError."""
    first: dict[str, Named] = {}
    return {
        name: ByClient(
            {
                client: with_columns_by_name(f"the {name} part of client {client}", piece, first)
                for client, piece in part.items()
            }
        )
        if isinstance(part, ByClient)
        else with_columns_by_name(f"the {name} part", part, first)
        for name, part in parts.items()
    }


def pieces_in(part: Any) -> list[Any]:
    """The parts of the clients, or the part itself if it has none."""
    return [*part.values()] if isinstance(part, ByClient) else [part]


def entries_by_client(value: Any, keys: SectionKeys = NO_KEYS) -> dict[str, Any]:
    """The entries of a list or dict that holds a part for each client; none of anything else. Raises ConfigError."""
    return _pieces_of(value, _entries_of(value), keys)


def part_in_name(name: str, words: Collection[str] = PARTS) -> str:
    """The part that a name has as one of these words, such as test in `UNSW_NB15_testing-set`; or nothing."""
    return next((PARTS[word] for word in re.split("[-_.= ]", name.lower()) if word in words), "")


def _refuse_arrays_by_part(value: Mapping[Any, Any]) -> None:
    """Raises ConfigError for arrays whose names have parts as words, such as x_train and y_train."""
    by_part: dict[str, list[str]] = {}
    for key in value:
        by_part.setdefault(part_in_name(str(key)), []).append(str(key))
    are_arrays = all(is_column(item) and not is_table(item) for item in value.values())
    if len(value) > 1 and are_arrays and "" not in by_part:
        pairs = ", ".join(f"'{part}': ({', '.join(names)})" for part, names in by_part.items())
        raise ConfigError(f"data is a dict of {', '.join(map(str, value))}; pass {{{pairs}}}")


def _is_part_name(key: Any) -> bool:
    return str(key).lower() in PARTS


def _with_known_forms(value: Any) -> Any:
    """The value with Arrow tables as tables of pandas, and what np.load has opened as a dict."""
    if isinstance(value, NpzFile):
        return {**value}
    if is_foreign_table(value):
        return value.to_pandas()
    if type(value) in (tuple, list) and any(map(is_foreign_table, value)):
        return tuple(map(_with_known_forms, value))
    if isinstance(value, Mapping) and any(map(is_foreign_table, value.values())):
        return {key: _with_known_forms(item) for key, item in value.items()}
    return value


def _find_parts(value: Any, keys: SectionKeys) -> dict[str, Any]:
    """The parts by name, `train` and perhaps `val` and `test`, in this order. Raises ConfigError."""
    if isinstance(value, Mapping) and any(map(_is_part_name, value)):
        return _parts_by_name(value, keys)
    if isinstance(value, Mapping):
        _refuse_arrays_by_part(value)
    entries = _entries_of(value)
    if parts := _parts_of_each(entries, keys):
        return parts
    if pieces := _pieces_of(value, entries, keys):
        ordered = isinstance(value, tuple | list) and len(pieces) in IN_ORDER
        return _parts_in_order(pieces, keys) if ordered else {"train": ByClient(pieces)}
    if are_four_arrays(value):
        return _four_arrays(value)
    forms = {*map(form_of, value)} if isinstance(value, tuple | list) and len(value) in IN_ORDER else set()
    if len(forms) > 1 and all(forms):  # parts of different forms are no clients
        return _in_order(dict(zip(IN_ORDER[len(value)], value, strict=True)), keys)
    if not form_of(value):
        raise _not_understood(value)
    return {"train": value}


def _entries_of(value: Any) -> dict[str, Any]:
    """The entries of a dict, list or tuple by name or number; none of an empty one, or of anything else."""
    if type(value) in (list, tuple):
        return {str(number): item for number, item in enumerate(value)}
    if not isinstance(value, Mapping):
        return {}
    entries = {str(key).strip(): item for key, item in value.items()}
    if len(entries) < len(value):
        raise ConfigError("data: two clients of the dict have the same name; rename one")
    return entries


def _pieces_of(value: Any, entries: dict[str, Any], keys: SectionKeys) -> dict[str, Any]:
    """The entries if they are parts of one form, a part for each client; else none. Raises ConfigError."""
    form = form_of(next(iter(entries.values()), None))
    if not form or are_columns(value) or not all(form_of(entry) == form for entry in entries.values()):
        return {}
    if form == "table":
        return entries if are_tables_alike(value) else {}
    if form == "items":
        return entries if all(type(entry) is list and all(map(_is_item, entry)) for entry in entries.values()) else {}
    if form in ("arrays", "columns") and not isinstance(value, Mapping):
        return entries if _are_rows([*entries.values()], keys) else {}
    return entries


def _is_item(value: Any) -> bool:
    return isinstance(value, tuple | Mapping)


def _are_rows(entries: list[Any], keys: SectionKeys) -> bool:
    """Whether entries (X, y), or dicts of columns, hold rows of samples with a target each, and are no single samples.

    n rows in X and n values in y are never one sample with n targets, unless the task says so. Raises ConfigError.
    """
    shapes = [[*map(shape_of, entry.values() if isinstance(entry, Mapping) else entry)] for entry in entries]
    if any(len({shape[0] for shape in each}) > 1 for each in shapes) or all(len(shape) == 1 for shape in shapes[0]):
        return False
    if isinstance(entries[0], Mapping):
        return keys.task in ONE_TARGET and any(len(shape) == 1 for shape in shapes[0])
    samples, targets, *_ = shapes[0]
    if len(samples) == 1 or len(targets) == 1:
        return len(samples) > 1 and keys.task in ONE_TARGET
    if len(samples) > 3 or targets != samples[: len(targets)] or len({each[0][0] for each in shapes}) > 1:
        return True
    if keys.task != "auto":
        return keys.task != "segmentation"
    raise open_decision(
        "data",
        f"{len(entries)} entries of arrays {[*samples]} and {[*targets]}",
        {
            "a dict of them by name": f"clients of {samples[0]} rows each",
            "--data.task segmentation": "samples with a target at each place",
        },
    )


def _parts_in_order(pieces: dict[str, Any], keys: SectionKeys) -> dict[str, Any]:
    """The parts of a pair or triple of one form, which could be clients, if it says so itself. Raises ConfigError."""
    declared = [_declared_part(piece) for piece in pieces.values()]
    if "" not in declared and len({*declared}) == len(declared):
        return _in_order(dict(zip(declared, pieces.values(), strict=True)), keys)
    names = IN_ORDER[len(pieces)]
    if keys.user or all(form_of(piece) == "arrays" and len(piece) == 3 for piece in pieces.values()):
        return _in_order(dict(zip(names, pieces.values(), strict=True)), keys)
    by_name = ", ".join(f'"{name}": ...' for name in names)
    raise open_decision(
        "data",
        f"{len(pieces)} parts of one form ({form_of(pieces['0'])})",
        {
            f"data={{{by_name}}}": "the parts of one data set",
            'data={"a": ..., "b": ...}, by name, or one (X, y, users)': f"the data of {len(pieces)} clients",
        },
    )


def _declared_part(value: Any) -> str:
    """The part that a data set says it is, by `train` or `split` as in torchvision and Hugging Face; else empty."""
    train, split = getattr(value, "train", None), getattr(value, "split", None)
    if isinstance(train, bool):
        return "train" if train else "test"
    return PARTS.get(str(split).lower(), "")


def _parts_of_each(entries: dict[str, Any], keys: SectionKeys) -> dict[str, Any]:
    """The parts, if every entry is a client with parts of its own: a dict by part, or four arrays; else none."""
    values = [*entries.values()]
    by_name = bool(values) and all(isinstance(item, Mapping) and any(map(_is_part_name, item)) for item in values)
    four = bool(values) and all(type(item) is tuple and are_four_arrays(item) for item in values)
    if not by_name and not four:
        return {}
    each = {name: _parts_by_name(entry, keys) if by_name else _four_arrays(entry) for name, entry in entries.items()}
    by_part = {
        part: {name: given[part] for name, given in each.items() if part in given} for part in ("train", "val", "test")
    }
    return {part: ByClient(clients) for part, clients in by_part.items() if clients}


def _parts_by_name(value: Mapping[Any, Any], keys: SectionKeys) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for key, part in value.items():
        name = PARTS.get(str(key).lower())
        if name is None or name in parts:
            why = "unknown" if name is None else f"the {name} part too"
            raise ConfigError(
                f"data: part {key!r} is {why}; pass a dict of the parts train, validation and test alone, "
                "of which train is needed"
            )
        parts[name] = part
    return _in_order(parts, keys)


def _in_order(given: Mapping[str, Any], keys: SectionKeys) -> dict[str, Any]:
    """The parts in their order, those of clients by client. Raises ConfigError."""
    if "train" not in given:
        there = f"{' and '.join(given)} alone" if given else "none"
        raise ConfigError(f"data: a part train is needed, and there is {there}")
    parts = {}
    for name in (name for name in ("train", "val", "test") if name in given):
        pieces = _pieces_of(given[name], _entries_of(given[name]), keys)
        parts[name] = ByClient(pieces) if pieces else given[name]
        if not pieces and not form_of(given[name]):
            raise ConfigError(f"the {name} part of the {_not_understood(given[name])}")
    clients = {part: [*part_data] if isinstance(part_data, ByClient) else None for part, part_data in parts.items()}
    if other := next((part for part, numbers in clients.items() if numbers != clients["train"]), None):
        raise ConfigError(f"data: the parts train and {other} have different clients; pass all of both, or none")
    return parts


def _as_tables(parts: dict[str, Any]) -> ObjectParts:
    """Parts (X, y) or (X, y, users) as tables if X is a frame, unless it can only be an array of numbers.

    Raises ConfigError.
    """
    pieces = [piece for part in parts.values() for piece in pieces_in(part)]
    if not all(form_of(piece) == "arrays" and is_table(piece[0]) and hasattr(piece[0], "assign") for piece in pieces):
        return ObjectParts(parts)
    is_odd = any(map(has_several_targets, pieces)) or not has_plain_names(pieces[0][0])
    if is_odd and not any(holds_more_than_numbers(piece[0]) for piece in pieces):
        return ObjectParts(parts)
    check_third_columns(pieces)
    tables = {
        name: ByClient({client: join_columns(name, *piece) for client, piece in part.items()})
        if isinstance(part, ByClient)
        else join_columns(name, *part)
        for name, part in parts.items()
    }
    return ObjectParts(tables, joined=JOINED[: len(pieces[0]) - 1])


def remedy_for(value: Any) -> str:
    """What to pass instead of an object that is nearly data; empty for others."""
    if is_loader(value):
        return "pass the data set of a DataLoader, loader.dataset"
    if is_stream(value):
        return "pass a map-style Dataset, or list(...), which reads all of its items"
    return "pass the frame, and the column of the groups as data.user" if is_grouped(value) else ""


def _not_understood(value: Any) -> ConfigError:
    called = type(value).__name__
    what = f"{'an' if called[0].lower() in 'aeio' or called == 'ndarray' else 'a'} {called}"
    entries = [*value.values()] if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else []
    if len(entries):
        what += f" of {', '.join(type(item).__name__ for item in entries[:4])}{', ...' if len(entries) > 4 else ''}"
    if is_column(value):
        return ConfigError(f"data is {what} without targets; pass (X, y)")
    if hasattr(value, "__iter__") and not hasattr(value, "__len__"):
        return ConfigError(f"data is {what} without a length (list(...) reads all of its items); {LEGAL}")
    if remedy := next(filter(None, map(remedy_for, entries if len(entries) else [value])), ""):
        return ConfigError(f"data is {what}; {remedy}")
    if isinstance(value, Mapping) and {"data", "target"} <= value.keys():
        return ConfigError(f"data is {what}; pass (its.data, its.target)")
    if isinstance(value, Mapping) and entries and all(isinstance(item, tuple) for item in entries):
        return ConfigError(f"data is {what}; pass a list of items, [*data.values()]")
    return ConfigError(f"data is {what}; {LEGAL}")


def _four_arrays(value: Sequence[Any]) -> dict[str, Any]:
    sizes = [len(array) for array in value]
    if sizes[0] != sizes[1] and sizes[0] == sizes[2] and sizes[1] == sizes[3]:
        raise ConfigError(
            f"data: arrays of {', '.join(map(str, sizes))} rows are in the order of train_test_split; pass "
            "(X_train, y_train, X_test, y_test)"
        )
    return {"train": tuple(value[:2]), "test": tuple(value[2:])}
