"""What was read: every choice that reading made, and whether it was given or the only one that makes sense.

A choice between two plausible readings that give other numbers is not made: it is asked (`open_decision` in errors.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from math import prod
from typing import Any, Literal

from fedbench.config.words import plural

MOST_SHOWN = 6
"""Names or values that a line lists."""
MOST_DECISIONS = 3
"""Decisions that a line of the block lists."""
SHOWN = ("data.task", "data.kind", "data.channels")
"""Keys whose decisions are facts that a line shows anyway."""
MOST_CONSTANTS = 3
"""Means and deviations that a line of the block lists."""
TASK = "task"
"""The word before the name of a task."""
NOUNS = {
    "class": "classes",
    "label": "labels",
    "number": "numbers",
    "class at each position": "classes at each position",
    "score": "scores at each position",
}
"""What targets consist of, with the plural."""
COLOURS = {1: "grey", 3: "colour"}
About = Literal["parts", "samples", "targets", "clients", "files"]


@dataclass(frozen=True)
class Decision:
    """One choice of a reader. about: what it decides on; said: the choice in words, `column died is the target`.

    how: given by a key or by the data's own declaration, or certain. key, value: what sets it in a configuration
    (`data.label`, `died`); no key if nothing can.
    """

    about: About
    said: str
    how: Literal["given", "certain"] = "certain"
    key: str = ""
    value: Any = None

    @property
    def with_key(self) -> str:
        """It with the key that sets it: `column died is the target (data.label: died)`."""
        return f"{self.said} ({self.key}: {value_text(self.value)})" if self.key else self.said

    def as_json(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, values: Iterable[Any]) -> "Decision":
        return cls(*values)


@dataclass(frozen=True)
class Parts:
    """Rows of the data's parts, of which a set of one part has one.

    dealt: rows that clients train on, validate on and are tested on, if they were dealt. drawn: how test rows were
    found then, the value of `partition.test`.
    """

    train: int
    val: int
    test: int
    one_part: bool
    dealt: tuple[int, int, int] | None = None
    drawn: str = ""

    def __str__(self) -> str:
        sizes = {"train": self.train, "validation": self.val, "test": self.test}
        parts = ", ".join(f"{count:,} {name}" for name, count in sizes.items() if count or name != "validation")
        text = f"{self.train + self.test:,} in one part" if self.one_part else parts
        if self.dealt is None:
            return text + (", of which a partition holds some out" if self.one_part else "")
        train, val, test = (f"{count:,}" for count in self.dealt)
        return (
            f"{text}; clients train on {train}, validate on {val}, are tested on {test} (partition.test {self.drawn})"
        )


@dataclass(frozen=True)
class Samples:
    """What a sample is.

    kind: image, feature, token or fields; shape: of one; channels: its dimension that is the channel, first or last.
    type: of the stored numbers. columns: the names of those of rows, if they have any; fields: the arrays of samples of
    several. unit: the divisor before normalisation. mean, std: per channel; none if samples stay as they are.
    """

    kind: str
    shape: tuple[int, ...]
    type: str
    columns: tuple[str, ...] = ()
    fields: str = ""
    unit: int = 1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channels: str = "first"

    @property
    def is_picture(self) -> bool:
        return self.kind == "image" and len(self.shape) == 3

    @property
    def kept(self) -> tuple[str, ...]:
        """The channels that stay as they are beside others that are standardised."""
        noun = "column" if len(self.shape) == 1 else "channel"
        names = self.columns or [f"{noun} {number}" for number in range(len(self.mean))]
        constants = zip(names, self.mean, self.std, strict=True)
        return tuple(name for name, mean, std in constants if (mean, std) == (0, 1))

    @property
    def form(self) -> str:
        """Their kind and shape."""
        if self.kind == "fields":
            return f"samples of several arrays: {self.fields}"
        if self.is_picture:
            channels, height, width = self.shape
            colour = COLOURS.get(channels, f"{channels}-channel")
            return f"{colour} images, {height} high and {width} wide, {self.type}"
        if self.kind == "token":
            return f"tokens (whole numbers) {[*self.shape]}"
        if len(self.shape) == 1:
            names = f": {first_names(self.columns)}" if self.columns else ""
            return f"rows of {plural(self.shape[0], 'feature')}, {self.type}{names}"
        count, numbers = len(self.mean), prod(self.shape) // max(1, len(self.mean))
        dimension = f": {count} channels of {numbers} numbers, the {self.channels} dimension" if count > 1 else ""
        return f"{self.kind}s {[*self.shape]}, {self.type}{dimension}"

    @property
    def scale(self) -> str:
        """What is done to their numbers."""
        if not self.mean:
            return "left as they are"
        each = "per column" if len(self.shape) == 1 else "per channel"
        each = "by one mean and deviation" if len(self.mean) == 1 else each
        divided = f"divided by {self.unit}, then " if self.unit != 1 else ""
        if len(self.kept) == len(self.mean):
            return f"{divided}left as they are"
        text = f"{divided}standardised {each}"
        if self.is_picture and len(self.mean) <= MOST_CONSTANTS:
            mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (self.mean, self.std))
            text += f" (mean {mean}; deviation {std})"
        return text + (f"; left as they are: {first_names(self.kept)}" if self.kept else "")

    def __str__(self) -> str:
        return f"{self.form}; {self.scale}"


@dataclass(frozen=True)
class TargetForm:
    """What a target is.

    outputs: of a network, each a noun: class, label or number. names, counts: of classes or labels, and of all their
    samples (or positions). low, high: of numbers. void: values that do not count, with how often they occur.
    """

    task: str
    outputs: int
    noun: str
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    low: float | None = None
    high: float | None = None
    void: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        text = f"{TASK} {self.task}, {self.outputs} {NOUNS[self.noun] if self.outputs != 1 else self.noun}"
        if self.counts:
            named = [f"{name} ({count:,})" for name, count in zip(self.names, self.counts, strict=True)]
            text += f": {first_names(named)}"
        if self.low is not None and self.high is not None:
            text += f", from {self.low:.6g} to {self.high:.6g}"
        void = " and ".join(f"{value} ({count:,})" for value, count in self.void)
        return text + (f"; values that do not count: {void}" if void else "")


@dataclass(frozen=True)
class ClientSizes:
    """The clients, by their numbers of samples. source: where they come from, in words. count: 0 if there are none."""

    source: str
    count: int = 0
    smallest: int = 0
    median: int = 0
    largest: int = 0

    def __str__(self) -> str:
        if not self.count:
            return self.source
        each = f"{self.smallest:,} samples each"
        if self.smallest < self.largest:
            each = f"{self.smallest:,} to {self.largest:,} samples, median {self.median:,}"
        return f"{self.count:,} {self.source}: {each}"


@dataclass(frozen=True, repr=False)
class Description:
    """What was read. known: whether it is one of fedbench's own sets. files: the number of files that were read.

    notes: what a user should know of the data, and of the partition, if they were dealt.
    """

    name: str
    known: bool
    parts: Parts
    samples: Samples
    targets: TargetForm
    clients: ClientSizes
    files: int = 0
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()

    def about(self, about: About) -> list[Decision]:
        """The decisions on this."""
        return [decision for decision in self.decisions if decision.about == about]

    @property
    def block(self) -> list[str]:
        """At most six lines to read before training; one of a set known by name that is read as it usually is."""
        if self.known and not any(decision.how == "given" for decision in self.decisions):
            what = f"{self.name}, {self.parts}; {self.samples.form}; {self.targets.task}"
            return [f"data: {what}; clients: {self.clients}"]
        return [f"{f'{key}:':<9} {text}" for key, text in self._said(MOST_DECISIONS)]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Everything, as pairs of a name and a text."""
        rows = [*self._said(0)]
        if self.samples.mean:
            pairs = zip(self.samples.mean, self.samples.std, strict=True)
            rows.append(("constants", ", ".join(f"{mean:.4f} ± {std:.4f}" for mean, std in pairs)))
        decided = [(decision.how, decision.with_key) for decision in self.decisions]
        return [*rows, *decided, *(("note", line) for line in self.notes)]

    def _said(self, most: int) -> Iterator[tuple[str, str]]:
        """A line for each part of it, with so many of the decisions on it."""
        texts = {"parts": str(self.parts), "samples": str(self.samples), "targets": str(self.targets)}
        texts |= {"clients": str(self.clients)}
        texts |= {"files": plural(self.files, "file")} if self.files > 1 or self.about("files") else {}
        yield "data", self.name
        for about, text in texts.items():
            lines = [own.said for own in self.decisions if own.about == about and own.key not in SHOWN]
            more = [f"{len(lines) - most} more decisions"] if len(lines) > most else []
            yield about, "; ".join([text, *(lines[:most] + more if most else ())])

    @property
    def keys(self) -> dict[str, Any]:
        """The decisions that a configuration can hold, by key."""
        return {decision.key: decision.value for decision in self.decisions if decision.key}

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": self.rows}

    def __str__(self) -> str:
        return "\n".join(f"{key:<11}{text}" for key, text in self.rows)

    __repr__ = __str__


def value_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def first_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:MOST_SHOWN])
    return f"{shown}, and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else shown
