"""A figure of a paper: the runs that it needs, as data, and what is drawn of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from fedbench.studies.space import Values


@dataclass(frozen=True)
class Figure:
    """draw: test accuracy over rounds, test accuracy in the last or chosen round over the values of an option, traces
    over rounds, or the classes of the public set, without a run. lines: method texts by name, without spaces if `over`
    is given; levels: those that do not depend on the option, drawn as level lines over its values.

    over, values: an option's key, and the values with which every line runs; small_values: those at small scale, if
    others; instead: keys that a value stands for, if it is none of the option. traces: their names (`NAME/*`: all that
    begin with NAME/). clients: whose traces; none: the mean over all. axis: the title of the axis of values or traces.
    """

    draw: Literal["rounds", "values", "traces", "public"]
    lines: dict[str, str] = field(default_factory=dict)
    axis: str = ""
    levels: dict[str, str] = field(default_factory=dict)
    over: str = ""
    values: tuple[Any, ...] = ()
    small_values: tuple[Any, ...] = ()
    instead: dict[float, dict[str, Any]] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> "Figure":
        """From a file or a record."""
        return TypeAdapter(cls).validate_python(tree)

    def at(self, scale: str) -> tuple[Any, ...]:
        """The values of the option at a scale."""
        return self.small_values if scale == "small" and self.small_values else self.values

    def runs(self, scale: str) -> dict[str, tuple[str, Values]]:
        """By label, the method as text and the keys that it adds."""
        if not self.over:
            return {line: (text, {}) for line, text in self.lines.items()}
        along = {
            self.label(line, value): (text, self.keys_of(value))
            for line, text in self.lines.items()
            for value in self.at(scale)
        }
        return along | {line: (text, {}) for line, text in self.levels.items()}

    def keys_of(self, value: Any) -> Values:
        """The keys that a value of the option sets."""
        return self.instead.get(value, {self.over: value})

    def label(self, line: str, value: Any) -> str:
        """`obp quantile=0.9`."""
        return f"{line} {self.value_name(value)}"

    def value_name(self, value: Any) -> str:
        """`quantile=0.9`."""
        return f"{self.over.rpartition('.')[2]}={value:g}"
