"""Columns beside samples and targets that say how a partition may split the data: groups, and an order."""

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.errors import ConfigError, nearest

if TYPE_CHECKING:
    import pandas as pd

DOMAIN = "domain"
"""The name of a sample's domain, such as its user, among groups: for data without named columns."""
ISO_TIME = re.compile(r"\d{4}(-|$)")
"""How a date begins: pandas reads other texts too, such as 20260131."""
OFFSET = re.compile(r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$|:\d\d(Z|[+-]\d\d(:?\d\d)?)$")
"""The end of a time with an offset from UTC."""


class Beside(NamedTuple):
    """The names of columns, or of keys of items, that are no features. group: of what stays together; order: in time.

    Empty for none.
    """

    group: str = ""
    order: str = ""

    @classmethod
    def of(cls, config: PartitionConfig) -> "Beside":
        """The columns that a partition asks for."""
        return cls(config.test_by or "", config.order_by or "")

    @property
    def first_key(self) -> str:
        """The key that names a column, with its value, for messages."""
        return f"partition.test_by = {self.group}" if self.group else f"partition.order_by = {self.order}"

    @property
    def decided(self) -> dict[str, str]:
        """The entries that it adds to the options by which decoded content is known."""
        return {key: name for key, name in zip(("test_by", "order_by"), self, strict=True) if name}

    def among(self, names: Sequence[str], where: str, noun: str) -> "Beside":
        """These columns, without `domain` where it is no column but the domain. Raises ConfigError."""
        columns = self._replace(group="") if self.group == DOMAIN not in names else self
        for key, name in zip(("test_by", "order_by"), columns, strict=True):
            if name and name not in names:
                raise ConfigError(f"partition.{key} = {name}: {where} has no such {noun}; {nearest(name, names)}")
        return columns

    def arrays(self, groups: Sequence[Any] | None, order: Sequence[Any] | None, where: str) -> dict[str, np.ndarray]:
        """The numbers of groups and places, int64 [rows], by name. Raises ConfigError."""
        arrays = {}
        if self.group and groups is not None:
            arrays["groups"] = numbers_of(groups, f"{where}: {self.group} of partition.test_by")
        if self.order and order is not None:
            arrays["order"] = places_of(order, f"{where}: {self.order} of partition.order_by")
        return arrays


NOTHING = Beside()
"""No columns."""


def numbers_of(values: Iterable[Any], what: str) -> np.ndarray:
    """A number for each different value, in the order in which they come, int64 [rows]. Raises ConfigError."""
    import pandas as pd  # half a second, which help and refusals do without

    column = pd.Series([*map(_plain, values)], dtype=object)
    if (unhashable := column.map(lambda value: not isinstance(value, Hashable))).any():
        kind = type(column[unhashable].iloc[0]).__name__
        raise ConfigError(f"{what} holds a {kind} in row {int(unhashable.argmax()) + 1}; a text or number is expected")
    numbers = pd.factorize(column)[0].astype(np.int64)
    if (numbers < 0).any():
        raise ConfigError(f"{what} is missing in row {int((numbers < 0).argmax()) + 1}; fill it in")
    return numbers


def places_of(values: Iterable[Any], what: str) -> np.ndarray:
    """The places of values in their order, the same for equal ones, int64 [rows]. Raises ConfigError."""
    import pandas as pd

    column = pd.Series([*map(_plain, values)])
    if not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column):
        column = instants_of(column, what)
    if column.isna().any():
        raise ConfigError(f"{what} is missing in row {int(column.isna().argmax()) + 1}; fill it in")
    return np.unique(column.to_numpy(), return_inverse=True)[1].reshape(-1).astype(np.int64)


def instants_of(column: "pd.Series[Any]", what: str) -> "pd.Series[Any]":
    """Dates and times, or texts of them as ISO 8601 writes them, as instants. Raises ConfigError.

    Texts with and without an offset from UTC have no order.
    """
    import pandas as pd

    known = column[column.notna()]
    texts = known.map(lambda value: value.isoformat() if hasattr(value, "isoformat") else str(value))
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    wrong = times.isna() | ~texts.map(lambda text: ISO_TIME.match(text) is not None)
    if wrong.any():
        raise ConfigError(
            f"{what} holds {texts[wrong].iloc[0]!r}; numbers, and dates and times like 2026-01-31 or 2026-01-31 "
            "09:05, have an order"
        )
    offsets = texts.map(lambda text: OFFSET.search(text) is not None)
    if offsets.nunique() > 1:
        some, others = (texts[offsets == kind].iloc[0] for kind in (True, False))
        raise ConfigError(f"{what} holds {some!r} and {others!r}; give all times an offset from UTC, or none")
    return times.reindex(column.index)


def _plain(value: Any) -> Any:
    """A value without its array or tensor of one element."""
    return value.item() if getattr(value, "ndim", None) == 0 or getattr(value, "size", 0) == 1 else value
