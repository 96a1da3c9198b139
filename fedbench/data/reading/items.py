"""Parts of map-style data sets: reads samples, targets and domains from items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from fedbench.data.fields import Fields
from fedbench.data.normalisation import Channels
from fedbench.data.reading.beside import DOMAIN, NOTHING, Beside
from fedbench.data.reading.columns import items_of_columns
from fedbench.data.reading.images import Item
from fedbench.data.reading.item_values import (
    names_and_count,
    names_of_column,
    refuse_masked,
    refuse_void_text,
    unwrap_target,
    unwrap_value,
)
from fedbench.data.reading.keys import USUAL, NamedParts
from fedbench.data.reading.resolution import check_channels
from fedbench.data.reading.samples import SampleKind, SampleReader, as_array
from fedbench.data.reading.structure import StructureReader, is_array, is_structure
from fedbench.data.reading.targets import piece_of
from fedbench.errors import ConfigError, RunError
from fedbench.user_code.forms import is_masked
from fedbench.user_code.memory import add_memory
from fedbench.user_code.third_value import check_kind, check_second, check_vector

PROBES, FEW_ITEMS = 32, 1000
"""Items of a part checked at every start for changes: all if there are few."""
NUMBERS_PER_SAMPLE = 16
"""In-memory samples hold at least this many numbers each, unless they are smaller."""


class Keys(NamedTuple):
    """The keys of sample (several separated by commas), label and user in items that are dicts; None: the usual one.

    beside: keys that a partition reads, which are no part of the sample.
    """

    sample: str | None = None
    label: str | None = None
    user: str | None = None
    beside: Beside = NOTHING


@dataclass(frozen=True)
class GivenPart:
    """The train or the test part.

    classes, domains: its names of class and domain numbers, if any; count: the number of classes it declares. pieces:
    the place and size of the parts of which it consists, if it is joined.
    """

    data: Any
    where: str
    keys: Keys
    classes: tuple[str, ...]
    count: int | None
    domains: tuple[str, ...]
    pieces: tuple[tuple[str, int], ...] = ()

    @classmethod
    def joined(cls, parts: Sequence["GivenPart"]) -> "GivenPart":
        """The parts of clients one after another. Raises ConfigError if they name different classes."""
        first, *others = parts
        for part in others:
            if (part.classes, part.count, part.domains) != (first.classes, first.count, first.domains):
                raise ConfigError(f"{part.where}s: other classes or domains than those of the first client")
        rows = [part.data for part in parts]
        lists = all(isinstance(data_of_part, list) for data_of_part in rows)
        data: Any = list(chain(*rows)) if lists else ConcatDataset(rows)
        return replace(first, data=data, pieces=tuple((part.where, len(part)) for part in parts))

    @classmethod
    def of(cls, name: str, part: str, data: Any, keys: Keys) -> "GivenPart":
        """A part of data that a user brings. Raises ConfigError if it has no length or no items."""
        where = f"data {name}, {part} item"
        data = items_of_columns(data, where)
        if isinstance(data, np.ndarray | torch.Tensor) or hasattr(data, "to_numpy"):
            raise ConfigError(
                f"data {name}: the {part} part is one {type(data).__name__}; a factory returns (train, test), and each "
                "of them is a map-style data set or a pair of arrays (samples, targets)"
            )
        try:
            size = len(data)
        except TypeError:
            raise ConfigError(
                f"data {name}: the {part} part is a {type(data).__name__} without a length; a data set with __len__ "
                "and __getitem__ (map-style), such as a list of its items, is expected"
            ) from None
        if not size:
            raise ConfigError(f"data {name}: the {part} part has 0 items; both parts are needed")
        whole = without_wrappers(data, where)
        names = getattr(whole, "classes", None)
        names = getattr(whole, "class_to_idx", None) if names is None else names
        names = names_of_column(whole, keys.label) if names is None else names
        classes, count = names_and_count(names, f"data {name}: `classes` of the {part} part")
        domains, _ = names_and_count(getattr(whole, "domains", None), f"data {name}: `domains` of the {part} part")
        return cls(data, where, keys, classes, count, domains)

    def __len__(self) -> int:
        return len(self.data)

    def place(self, index: int) -> str:
        """The place of an item for error messages."""
        where, row = piece_of(self.pieces, index) if self.pieces else (self.where, index)
        return f"{where} {row}"

    @property
    def sizes(self) -> list[int]:
        """The sizes of its pieces, or its own."""
        return [size for _, size in self.pieces] or [len(self)]

    def item(self, index: int) -> Item:
        """One item, unchanged. Raises ConfigError."""
        where, item = self.place(index), self._as_given(index)
        sample, target, domain = self._fields(item, where)
        for what, value in (("target", target), ("user", domain)):
            refuse_masked(where, what, value)
        return Item(sample, unwrap_target(target), where, self._domain(domain, where), self._beside(item, where))

    def _as_given(self, index: int) -> Any:
        """One item as the data set has it. Raises ConfigError."""
        try:
            return self.data[index]
        except Exception as error:
            raise ConfigError(f"{self.place(index)}: cannot be read: {RunError.of(error)}") from error

    def _beside(self, item: Any, where: str) -> tuple[Any, Any]:
        """The values by which a partition groups and orders items, None for none. Raises ConfigError."""
        columns = self.keys.beside
        if not any(columns):
            return None, None
        if not isinstance(item, Mapping):
            if columns == Beside(DOMAIN):
                return None, None
            raise ConfigError(
                f"{columns.first_key}: {where} is no dict and has no such key; bring dicts, columns by name or a data "
                f"frame ({DOMAIN}, for partition.test_by, is the third value of an item)"
            )
        columns = columns.among([*item], where, "key")
        values = [unwrap_value(item[key]) if key and not is_masked(item[key]) else None for key in columns]
        for key, value in zip(columns, values, strict=True):
            if key:
                refuse_void_text(where, key, value)
            if key and (value is None or value != value):
                raise ConfigError(f"{where}: no value of {key}; fill it in, or leave the item out")
        return values[0], values[1]

    def _fields(self, item: Any, where: str) -> tuple[Any, Any, Any]:
        """Sample, target and domain, None if absent."""
        if isinstance(item, Mapping):
            keys, label, user = self._find_keys(item, where)
            sample = item[keys[0]] if len(keys) == 1 else {key: item[key] for key in keys}
            return sample, item[label], item[user] if user else None
        self._refuse_names(where)
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            what = type(item).__name__ + (f" of {len(item)}" if isinstance(item, tuple | list) else "")
            raise ConfigError(
                f"{where}: a {what}; (sample, target), (sample, target, domain) or a dict of them is expected"
            )
        return item[0], item[1], item[2] if len(item) == 3 else None

    def _refuse_names(self, where: str) -> None:
        """Raises ConfigError if keys of the sample, label or user are named, which items without keys do not have."""
        for what, name in zip(USUAL, self.keys, strict=False):
            if name:
                raise ConfigError(
                    f"data.{what} = {name!r}: {where} is no dict and has no keys: its values are the sample, the "
                    "target and perhaps the user, in this order; leave the key out, or bring dicts"
                )

    def has_third_values(self) -> bool:
        """Whether items are (sample, target, user), of which nothing but the place says what is the user."""
        item = self._as_given(0)
        return isinstance(item, tuple | list) and len(item) == 3 and not self.domains

    def check_third_value(self, task: str) -> None:
        """Raises ConfigError if the third value of the first item may be something else than its user."""
        if self.has_third_values():
            sample, second, third = self._as_given(0)
            check_second(self.place(0), sample, second, task)
            third = None if is_masked(third) else unwrap_value(third)
            check_kind(self.place(0), third)
            check_vector(self.place(0), second, third, task)

    def label_key(self) -> str | None:
        """The key of the target in items that are dicts, if they have one. Raises ConfigError."""
        first = self.data[0]
        if not isinstance(first, Mapping):
            return None
        return NamedParts(list(first), self.where).find("label", self.keys.label)

    def _find_keys(self, item: Mapping[str, Any], where: str) -> tuple[list[str], str, str | None]:
        """The keys of the sample, of the label and, if there is one, of the user."""
        keys = NamedParts(list(item), where)
        label, user = keys.require("label", self.keys.label), keys.find("user", self.keys.user)
        if label in self.keys.beside:
            raise ConfigError(f"{self.keys.beside.first_key}: {label} is the target of {where}; name another key")
        left = [key for key in item if key not in (label, user, *self.keys.beside)]
        if self.keys.sample and "," in self.keys.sample:
            sample = [NamedParts(left, where).require("sample", name, ()) for name in self.keys.sample.split(",")]
        elif not self.keys.sample and len(arrays := [key for key in left if is_array(item[key])]) > 1:
            sample = arrays
        else:
            hint = ", or several separated by commas; a pandas DataFrame is read as a table of features"
            only = left if len(left) == 1 else None
            sample = [NamedParts(left, where, hint=hint).require("sample", self.keys.sample, only)]
        return sample, label, user

    def reader(self, kind: SampleKind | None, channels: Channels | None = None) -> SampleReader | StructureReader:
        """A reader for samples like the first one. kind, channels: what they are, if set. Raises ConfigError."""
        first = self.item(0)
        if not is_structure(first.image):
            return SampleReader.of(first, kind, channels)
        for key, value in (("kind", kind), ("channels", channels)):
            if value:
                raise ConfigError(
                    f"data.{key} = {value}: a sample of {self.where}s consists of several arrays; leave it out"
                )
        return StructureReader.of(first)

    def fields(self, reader: SampleReader | StructureReader) -> tuple[Fields | None, tuple[str, ...]]:
        """The structure of batches, if they are not (samples, targets), and remarks on it."""
        item, tree = self.data[0], getattr(reader, "tree", None)
        if not isinstance(item, Mapping):
            return (Fields(tree) if tree is not None else None), ()
        keys, label, user = self._find_keys(item, self.where)
        fields = Fields(tree, label, None if isinstance(tree, dict) else keys[0])
        out = [key for key in item if key not in (*keys, label, user, *self.keys.beside)]
        read = f"the sample is {fields if tree is not None else keys[0]}; {label} is the target"
        remark = read + (f"; left out: {', '.join(out)} (data.sample chooses keys)" if out else "")
        return fields, (remark,) if tree is not None or out else ()

    def _domain(self, value: Any, where: str) -> int | str | None:
        """The domain by name, if the part has names."""
        value = unwrap_value(value)
        if value is None:
            if self.domains:
                raise ConfigError(f"{where}: no domain, but the part names {len(self.domains)} `domains`")
            return None
        if isinstance(value, float) and value.is_integer():  # as pandas writes whole numbers beside missing ones
            value = int(value)
        refuse_void_text(where, "domain", value)
        if isinstance(value, bool) or not isinstance(value, int | str):
            what = value if isinstance(value, float) else f"a {type(value).__name__}"
            raise ConfigError(f"{where}: the domain is {what}; text or a whole number is expected")
        if not self.domains:
            return value
        if isinstance(value, str) and value in self.domains:
            return value
        if isinstance(value, str) or not 0 <= value < len(self.domains):
            raise ConfigError(
                f"{where}: domain {value!r}; a number from 0 to {len(self.domains) - 1} or a name is expected"
            )
        return self.domains[value]

    def probe(self, reader: SampleReader | StructureReader, digest: Any) -> str | None:
        """Adds names, in-memory data and some evenly spaced items to a digest.

        Returns a remark if the samples seem to be outside memory. Raises ConfigError if an item changes when read
        again, or if float32 cannot represent the samples.
        """
        digest.update(repr((self.classes, self.count, self.domains)).encode())
        whole = isinstance(self.data, list | tuple) or len(self) <= FEW_ITEMS
        numbers = 0 if whole else add_memory(self.data, digest)
        few, rows = {round(i) for i in np.linspace(0, len(self) - 1, PROBES)}, []
        for index in range(len(self)) if whole else sorted(few):
            item = self.item(index)
            sample = reader(item)
            if index in few:
                again = self.item(index)
                require_same_again(item, again, sample, reader(again))
                rows += [as_array(item.image, item.where)] if reader.kind == "feature" else []
            facts: tuple[Any, ...] = (np.asarray(item.label).tolist(), item.domain, sample.shape, sample.dtype.str)
            facts += item.beside if any(self.keys.beside) else ()
            digest.update(repr(facts).encode() + sample.tobytes())
        where = self.where.removesuffix(" item").removesuffix(",")
        if rows and len({row.shape for row in rows}) == 1:
            check_channels(where, np.stack(rows))
        if whole or numbers >= len(self) * min(sample.size, NUMBERS_PER_SAMPLE):
            return None
        return (
            f"{where}: the samples seem to be outside memory: {PROBES} of {len(self)} are looked at on "
            "every start; where others change, empty the folder `decoded` of the cache"
        )


def without_wrappers(data: Any, where: str) -> Any:
    """The data set behind subsets and concatenations, whose names of classes and domains hold for all of it.

    Raises ConfigError if concatenated data sets name them otherwise.
    """
    while isinstance(data, Subset | ConcatDataset):
        if isinstance(data, Subset):
            data = data.dataset
            continue
        first, *others = (without_wrappers(one, where) for one in data.datasets)
        for name in ("classes", "class_to_idx", "domains"):
            names, *different = (repr(getattr(one, name, None)) for one in (first, *others))
            if other := next((text for text in different if text != names), None):
                raise ConfigError(
                    f"{where}s: a ConcatDataset of data sets with {name} {names[:60]} and {other[:60]}, so that one "
                    "number means two things; give all the same, in one order"
                )
        data = first
    return data


def require_same_again(item: Item, again: Item, sample: np.ndarray, sample_again: np.ndarray) -> None:
    """Raises ConfigError if an item is another one when it is read again."""
    changes = {
        "sample": sample.shape != sample_again.shape or (sample != sample_again).any(),
        "target": repr(np.asarray(item.label).tolist()) != repr(np.asarray(again.label).tolist()),
        "user": item.domain != again.domain,
    }
    if what := next((what for what, changed in changes.items() if changed), ""):
        raise ConfigError(
            f"{item.where}: the {what} changes when read again; each is read once, so leave random transforms out"
        )
