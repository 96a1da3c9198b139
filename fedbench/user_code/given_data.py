"""Data that a user passes as Python objects: which objects are understood, and a name that identifies their content."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any

from fedbench.errors import ConfigError, RunError
from fedbench.import_string import AT, keep, own_object
from fedbench.user_code.objects import Walk

MEMORY = "memory:"
"""The beginning of the name of data that are objects."""
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of parts in a dict."""
LEGAL = (
    "(X, y), (X, y, users) or (X_train, y_train, X_test, y_test) of arrays, a map-style Dataset, a dict of columns, a "
    "pandas DataFrame, a pair (train, test) of these, a DatasetDict or a LightningDataModule is understood, and so are "
    "a name and a function"
)


@dataclass
class GivenData:
    """Data as objects. They stay in their process; others know them by the copy in the cache.

    kind: arrays, columns, items, table, or the class of the data set. parts: by name, `train` and perhaps `val` and
    `test`; empty in other processes. collate: the function of the loaders of a LightningDataModule, if it has one of
    its own. decided: what determines the copy, by the configuration. sources: what this
    process reads, likewise.
    """

    name: str
    kind: str
    parts: Mapping[str, Any]
    collate: Callable[[list[Any]], Any] | None = None
    decided: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)

    def look_again(self) -> None:
        """Checks before a new command that the objects are still those of the name. Raises ConfigError."""
        if self.parts:
            self.sources.clear()
        if self.parts and not self.name.endswith(AT + _digest(self.parts, self.collate)):
            raise ConfigError(f"data {self.name}: the objects have changed since; pass them again, Config(data=...)")

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.name, self.kind, self.decided)


def _received(name: str, kind: str, decided: dict[str, dict[str, Any]]) -> GivenData:
    """The data from another process, or this process's own."""
    here = own_object(name)
    return here if isinstance(here, GivenData) else GivenData(name, kind, {}, decided=decided)


def given_data(name: str) -> GivenData | None:
    """The data of a name, if this process knows them."""
    found = own_object(name) if name.startswith(MEMORY) else None
    return found if isinstance(found, GivenData) else None


def with_data_name(value: Any, keys: Mapping[str, Any]) -> Any:
    """A data section in which objects are replaced by their name. keys: of the section. Raises ConfigError."""
    if isinstance(value, type) and hasattr(value, "train_dataloader"):
        raise ConfigError(f"data is the class {value.__name__}; pass an instance, {value.__name__}(...)")
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float | type | FunctionType):
        return value
    if isinstance(value, Mapping) and "name" in value:
        named = with_data_name(value["name"], keys)
        return {**value, **(named if isinstance(named, dict) else {"name": named})}
    if isinstance(value, Mapping) and not _holds_data(value, keys):
        return value
    return {"name": _name_of_data(value)}


def _holds_data(value: Mapping[Any, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a mapping holds parts or columns, not keys of the section."""
    train = [part for key, part in value.items() if PARTS.get(str(key).lower()) == "train"]
    if any((hasattr(part, "__iter__") or _is_arrow(part)) and not isinstance(part, str) for part in train):
        return True
    own = [part for key, part in value.items() if key not in keys]
    return any(_is_part(part) or (not isinstance(part, list) and _is_column(part)) for part in own) or (
        len(own) > 1 and all(map(_is_column, own))
    )


def _name_of_data(value: Any) -> str:
    collate = None
    if hasattr(value, "prepare_data") and hasattr(value, "train_dataloader") and not isinstance(value, type):
        parts, collate = _parts_of_module(value)
    else:
        parts = _as_tables(_find_parts(_without_arrow(value)))
    kind = _kind_of(parts["train"])
    name = f"{MEMORY}{kind}{AT}{_digest(parts, collate)}"
    keep(name, GivenData(name, kind, parts, collate))
    return name


def _without_arrow(value: Any) -> Any:
    """The value with Arrow tables as tables of pandas."""
    if _is_arrow(value):
        return value.to_pandas()
    if type(value) in (tuple, list) and any(map(_is_arrow, value)):
        return tuple(map(_without_arrow, value))
    if isinstance(value, Mapping) and any(map(_is_arrow, value.values())):
        return {key: _without_arrow(own) for key, own in value.items()}
    return value


def _find_parts(value: Any) -> dict[str, Any]:
    """The parts by name, `train` and perhaps `val` and `test`, in this order. Raises ConfigError."""
    if isinstance(value, Mapping) and any(str(key).lower() in PARTS for key in value):
        return _parts_by_name(value)
    if isinstance(value, tuple | list) and (found := _parts_in_order(value)):
        return found
    if not _is_part(value):
        raise _not_understood(value)
    return {"train": value}


def _as_tables(parts: dict[str, Any]) -> dict[str, Any]:
    """Parts (X, y) or (X, y, users) as tables if X is a table of pandas with columns of text or categories.

    Raises ConfigError.
    """
    apart = [isinstance(part, tuple | list) and _is_columns(part) and _is_table(part[0]) for part in parts.values()]
    if not all(apart) or not any(_holds_more_than_numbers(part[0]) for part in parts.values()):
        return parts
    return {name: _join_columns(name, *part) for name, part in parts.items()}


def _join_columns(part: str, samples: Any, target: Any, users: Any = None) -> Any:
    """One table of samples, target and users. Raises ConfigError."""
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
        if len(getattr(values, "shape", (0,))) > 1 and values.shape[1] > 1:
            raise ConfigError(
                f"data: the samples are a table with columns of text, which takes one {key} per row, not "
                f"{values.shape[1]}; encode these columns as numbers"
            )
    rows = {key: values.to_numpy() if hasattr(values, "to_numpy") else values for key, values in added.items()}
    return samples.assign(**{key: [*(own.ravel() if hasattr(own, "ravel") else own)] for key, own in rows.items()})


def _not_understood(value: Any) -> ConfigError:
    called = type(value).__name__
    what = f"{'an' if called[0].lower() in 'aeio' or called == 'ndarray' else 'a'} {called}"
    if isinstance(value, tuple | list):
        what += f" of {', '.join(type(own).__name__ for own in value[:4])}{', ...' if len(value) > 4 else ''}"
    if _is_column(value):
        return ConfigError(f"data is {what} without targets; pass (X, y)")
    if any(_is_loader(own) for own in (value if isinstance(value, tuple | list) else [value])):
        return ConfigError(f"data is {what}; pass the data set of a DataLoader, loader.dataset")
    if hasattr(value, "__iter__") and not hasattr(value, "__len__"):
        what += " without a length (list(...) reads all of its items)"
    return ConfigError(f"data is {what}; {LEGAL}")


def _parts_by_name(value: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, part in value.items():
        own = PARTS.get(str(key).lower())
        if own is None or own in found:
            why = "unknown" if own is None else f"the {own} part too"
            raise ConfigError(
                f"data: part {key!r} is {why}; pass a dict of the parts train, validation and test alone, "
                "of which train is needed"
            )
        found[own] = part
    return _in_order(found)


def _in_order(found: Mapping[str, Any]) -> dict[str, Any]:
    if "train" not in found:
        there = f"{' and '.join(found)} alone" if found else "none"
        raise ConfigError(f"data: a part train is needed, and there is {there}")
    for name, part in found.items():
        if not _is_part(part):
            raise ConfigError(f"the {name} part of the {_not_understood(part)}")
    return {name: found[name] for name in ("train", "val", "test") if name in found}


def _parts_in_order(value: Sequence[Any]) -> dict[str, Any] | None:
    """The parts of a tuple or list; None if it is one part, or none."""
    if len(value) == 4 and all(map(_is_column, value)):
        return _four_arrays(value)
    if len(value) not in (2, 3):
        return None
    tables = all(map(_is_table, value)) and all({*own.columns} & {*value[0].columns} for own in value)
    if tables or (all(map(_is_part, value)) and not _is_columns(value)):
        return dict(zip(("train", "val", "test") if len(value) == 3 else ("train", "test"), value, strict=True))
    return None


def _four_arrays(value: Sequence[Any]) -> dict[str, Any]:
    sizes = [len(own) for own in value]
    if sizes[0] != sizes[1] and sizes[0] == sizes[2] and sizes[1] == sizes[3]:
        raise ConfigError(
            f"data: arrays of {', '.join(map(str, sizes))} rows are in the order of train_test_split; pass "
            "(X_train, y_train, X_test, y_test)"
        )
    return {"train": tuple(value[:2]), "test": tuple(value[2:])}


def _parts_of_module(module: Any) -> tuple[dict[str, Any], Any]:
    """The data sets of the loaders of a LightningDataModule, and their collate function if it is their own.

    Raises ConfigError.
    """
    from lightning import LightningDataModule
    from torch.utils.data import default_collate, default_convert

    called = f"data {type(module).__name__}"
    for hook in ("on_before_batch_transfer", "on_after_batch_transfer"):
        if getattr(type(module), hook, None) not in (None, getattr(LightningDataModule, hook)):
            raise ConfigError(f"{called}: its {hook} is not called; move it to the model, or into the data sets")
    found: dict[str, Any] = {}
    try:
        module.prepare_data()
        for stage, parts in (("fit", ("train", "val")), ("test", ("test",))):
            module.setup(stage)
            found |= {part: loader for part in parts if (loader := _loader(module, part)) is not None}
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{called}: prepare_data(), setup(stage) and its loaders must work without a Trainer: {RunError.of(error)}"
        ) from error
    loaders = {part: _one_loader(loader, f"{called}.{part}_dataloader()") for part, loader in found.items()}
    usual = (default_collate, default_convert)
    own = {None if loader.collate_fn in usual else loader.collate_fn for loader in loaders.values()}
    if len(own) > 1:
        raise ConfigError(f"{called}: its loaders have different collate functions; give all of them the same one")
    return _in_order({part: loader.dataset for part, loader in loaders.items()}), own.pop() if own else None


def _loader(module: Any, part: str) -> Any:
    """The loader of a part; None if the module has none."""
    from lightning import LightningDataModule

    name = f"{part}_dataloader"
    own = getattr(type(module), name) is not getattr(LightningDataModule, name)
    loader = getattr(module, name)() if own else None
    return None if isinstance(loader, list) and not loader else loader


def _one_loader(loader: Any, where: str) -> Any:
    """The one loader of a part. Raises ConfigError."""
    from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

    if isinstance(loader, list | tuple) and len(loader) == 1:
        (loader,) = loader
    if not _is_loader(loader):
        raise ConfigError(f"{where} returns a {type(loader).__name__}; one DataLoader is expected")
    known = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if known and type(loader.sampler) not in (RandomSampler, SequentialSampler):
        raise ConfigError(
            f"{where} draws with a {type(loader.sampler).__name__}, but all items of its data set are read; leave it "
            "out, and choose items with torch.utils.data.Subset"
        )
    return loader


def _is_loader(value: Any) -> bool:
    return hasattr(value, "dataset") and hasattr(value, "collate_fn")


def _kind_of(part: Any) -> str:
    if _is_table(part):
        return "table"
    if _is_columns(part):
        return "columns" if isinstance(part, Mapping) else "arrays"
    if type(part) in (list, tuple):
        return "items"
    while type(part).__name__ == "Subset" and hasattr(part, "dataset"):
        part = part.dataset
    return type(part).__name__


def _is_table(value: Any) -> bool:
    """Whether it is a DataFrame."""
    return hasattr(value, "to_numpy") and hasattr(value, "columns")


def _is_arrow(value: Any) -> bool:
    """Whether it is a table of pyarrow."""
    return type(value).__module__ == "pyarrow.lib" and hasattr(value, "to_pandas") and hasattr(value, "columns")


def _holds_more_than_numbers(table: Any) -> bool:
    """Whether a table of pandas has columns that are neither numbers nor truth values."""
    from pandas.api.types import is_numeric_dtype

    return hasattr(table, "assign") and not all(map(is_numeric_dtype, table.dtypes))


def _is_column(value: Any) -> bool:
    """Whether it holds a value or array for every row: an array, a table, or a list of anything but items."""
    if isinstance(value, list):
        return bool(value) and not isinstance(value[0], tuple | Mapping)
    if hasattr(value, "to_numpy"):
        return True
    return hasattr(value, "dtype") and hasattr(value, "shape") and len(value.shape) > 0


def _is_columns(value: Any) -> bool:
    """Whether it is (samples, targets), (samples, targets, users) or a dict of columns."""
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_column, value.values()))
    return isinstance(value, tuple | list) and len(value) in (2, 3) and all(map(_is_column, value))


def _is_part(value: Any) -> bool:
    """Whether samples can be read from it: columns, a table, or items by number."""
    if _is_table(value) or _is_columns(value):
        return True
    if isinstance(value, str | bytes | Mapping) or _is_column(value) or hasattr(value, "forward"):
        return False
    if isinstance(value, tuple | list):
        return bool(value) and isinstance(value[0], tuple | list | Mapping)
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _digest(parts: Mapping[str, Any], collate: Any) -> str:
    """Eight hexadecimal digits that identify what the objects hold in memory, and the code of data sets."""
    from fedbench.user_code.memory import add_memory

    digest = sha256(b"" if collate is None else Walk(collate).fingerprint.encode())
    for name, part in parts.items():
        digest.update(name.encode())
        if _is_table(part):
            add_memory(list(_table_columns(part)), digest)
        elif _is_columns(part) or type(part) in (list, tuple):
            add_memory(part, digest)
        else:
            digest.update(Walk(part).fingerprint.encode())
    return digest.hexdigest()[:8]


def _table_columns(table: Any) -> Iterator[Any]:
    for name in table.columns:
        values = table[name].to_numpy()
        yield str(name), [*map(_known_cell, values)] if values.dtype.hasobject else values


def _known_cell(value: Any) -> Any:
    """A cell of a table by its content: lists and arrays as they are, others as text."""
    is_array = hasattr(value, "ndim") and value.ndim > 0
    return value if is_array or isinstance(value, list | tuple | dict) else str(value)
