"""Any map-style data set: a function package.module:factory that returns its two parts.

`factory(train: bool)` returns one part, `factory()` the pair (train, test). A part is a map-style data set, or a tuple
of arrays (samples, targets) or (samples, targets, domains); data frames and clients are read by `memory`. An item is
(sample, target), (sample, target, domain) or a dict; a sample is an array, or a dict or tuple of arrays. Kinds of
samples (`data.kind`): PIL images and uint8 arrays are images, other integers tokens, floats features. Tasks
(`data.task`): one class (integers, booleans, text, one-hot rows), multiple labels (rows of 0 and 1), or numbers. A
domain, such as the user, is text or a number; if a part names its `classes` or `domains`, its numbers index that list,
and both parts are matched by name. Further keys `data.*` are arguments of the factory, which take precedence over
fedbench's keys.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from fedbench.config import DataConfig
from fedbench.config.arguments import refuse_word
from fedbench.config.section import make_section
from fedbench.data.cache import Content, Source
from fedbench.data.description import Decision
from fedbench.data.fields import Fields
from fedbench.data.normalisation import Channels
from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.data.reading.images import Item, decoded_blocks, remarks_on
from fedbench.data.reading.item_values import checked_target, domain_numbers
from fedbench.data.reading.items import GivenPart, Keys
from fedbench.data.reading.samples import SampleKind, SampleReader
from fedbench.data.reading.spelling import SpellingOption, spelling_decision, with_one_spelling
from fedbench.data.reading.structure import PAD, StructureReader, collated_parts
from fedbench.data.reading.table_columns import TableOptions
from fedbench.data.reading.targets import piece_of, read_targets, refuse_count
from fedbench.errors import ConfigError, RunError, nearest
from fedbench.tasks.targets import TargetError, Targets
from fedbench.user_code.forms import are_columns
from fedbench.user_code.third_value import check_users


class Reading(SpellingOption):
    """Keys `data.*` for reading items, unless the factory has an argument of that name."""

    collate: str | None = Field(
        None,
        description="function that makes one batch of all items, for items of unequal sizes: pad (zeros at the end), "
        "or package.module:function, which is called like a DataLoader's collate_fn",
    )

    kind: SampleKind | None = Field(None, description="kind of the samples (default: by their type, see the docs)")
    channels: Channels | None = Field(
        None,
        description="dimension of a sample that is the channel, such as the sensors or the colour, with a mean and "
        "deviation each; single: one for all numbers (default: by the numbers, see the docs)",
    )
    classes: int | None = Field(
        None, ge=1, description="number of classes (default: the data set's `classes`, or by the labels)"
    )
    sample: str | None = Field(
        None,
        description="key of the sample in items that are dicts, or several separated by commas (default: all arrays)",
    )
    label: str | None = Field(None, description="key of the target in items that are dicts (default: a usual name)")
    user: str | None = Field(
        None, description="key of the domain or user in items that are dicts (default: a usual name)"
    )


def source(config: DataConfig, made: Mapping[str, Any], beside: Beside = NOTHING) -> Source:
    """The data set of the parts train and test that a factory made. Raises ConfigError."""
    reading = make_section(Reading, config.options, "data.")
    keys = Keys(reading.sample, reading.label, reading.user, beside)
    return source_of_parts(
        config, {part: GivenPart.of(config.name, part, data, keys) for part, data in made.items()}, reading
    )


def source_of_parts(
    config: DataConfig,
    parts: dict[str, GivenPart],
    reading: Reading,
    remarks: Sequence[str] = (),
    prints: Mapping[str, str] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
) -> Source:
    """The source of the parts train, and perhaps val and test. prints: fingerprints of the parts, if there are any.

    collate: is called if the configuration names none. Raises ConfigError.
    """
    parts["train"].check_third_value(config.task)
    if function := reading.collate or collate:
        label = parts["train"].label_key() if function == PAD else None
        items = collated_parts(config.name, function, [part.data for part in parts.values()], label)
        parts = {name: replace(parts[name], data=data) for name, data in zip(parts, items, strict=True)}
    reader, fields = prepare_reader(parts["train"], reading)
    probed = hashlib.sha256()
    lines = [line for part in parts.values() if (line := part.probe(reader, probed))]
    decided = {
        "config": config.options,
        "root": config.root,
        "task": config.task,
        "sizes": [len(part) for part in parts.values()],
        "probed": prints or probed.hexdigest(),
        **({"fields": fields.as_json()} if fields else {}),
        **parts["train"].keys.beside.decided,
    }
    every = (*reader.remarks, *remarks, *(() if prints else dict.fromkeys(lines)))
    fresh = replace(reader, transparent=[], remarks=every)
    return Source(config.name, partial(read, config, parts, reading, fresh, fields), options=decided)


def prepare_reader(train: GivenPart, reading: Reading) -> tuple[SampleReader | StructureReader, Fields | None]:
    """A reader of samples like those for training, and the structure of batches. Raises ConfigError."""
    reader = train.reader(reading.kind, reading.channels)
    fields, remarks = train.fields(reader)
    spelling = (spelling_decision(reading.spelling),) if reading.spelling else ()
    decided = (*reader.decisions, *(Decision("samples", line) for line in remarks), *spelling)
    return replace(reader, remarks=(*reader.remarks, *remarks), decisions=decided), fields


def factory_arguments(config: DataConfig, factory: Any) -> dict[str, Any]:
    """The arguments of a factory. Raises ConfigError for a key that is neither one nor a key of readers."""
    accepted = inspect.signature(factory).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    options = dict(config.options) | ({"root": config.root} if config.root else {})
    readers = {*Reading.model_fields, *TableOptions.model_fields}
    arguments = {key: value for key, value in options.items() if key in accepted or key not in readers}
    for key in arguments:
        if key not in accepted and not takes_any:
            keys = {*accepted, *readers, "root", "val", "task"} - {"train"}
            raise ConfigError(f"unknown key data.{key}: {config.name} takes no such argument; {nearest(key, keys)}")
        if key in accepted:
            refuse_word(f"data.{key}", arguments[key], accepted[key], config.name)
    return arguments


def data_of(config: DataConfig, factory: Any, arguments: dict[str, Any]) -> Any:
    """What a factory makes, with train and test by name if it is called for each, or returns a pair that is not (X, y).

    Raises ConfigError.
    """
    try:
        if "train" in inspect.signature(factory).parameters:
            return {name: factory(train=name == "train", **arguments) for name in ("train", "test")}
        made = factory(**arguments)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"data {config.name}: the factory failed: {RunError.of(error)}") from error
    is_pair = type(made) in (tuple, list) and len(made) == 2
    if not is_pair or (are_columns(made) and not isinstance(made[0], list)):  # a list may be a part, [X, y]
        return made
    return dict(zip(("train", "test"), made, strict=True))


def check_names_agree(name: str, train: GivenPart, val: GivenPart | None, test: GivenPart) -> None:
    """Raises ConfigError if parts disagree on their number of classes, or in whether they name classes and domains."""
    if val and val.classes and val.classes != train.classes:
        raise ConfigError(f"data {name}: the val part names other classes than the train part")
    if None not in (train.count, test.count) and train.count != test.count and not (train.classes and test.classes):
        raise ConfigError(
            f"data {name}: the train part says {train.count} classes and the test part {test.count}; bring the same "
            "number, or the names of both"
        )
    if bool(train.domains) != bool(test.domains):
        raise ConfigError(f"data {name}: one part names its `domains`, and the other does not; name those of both")


class ItemStream:
    """The items of parts one after another, with checked targets. What stands beside an item is kept meanwhile."""

    def __init__(self, name: str, parts: Sequence[GivenPart]) -> None:
        self.name, self.parts = name, parts
        self._first = parts[0].item(0)
        self._target = checked_target(self._first, None)
        self._beside: list[tuple[Any, Any]] = []

    def __iter__(self) -> Iterator[Item]:
        """Raises ConfigError for an item that is unlike the first."""
        without = self._first.domain is None
        for part in self.parts:
            for index in range(len(part)):
                item = part.item(index)
                if (item.domain is None) != without:
                    raise ConfigError(
                        f"{item.where}: it has {'no' if item.domain is None else 'a'} domain, unlike the first; bring "
                        "one with every sample, or leave such samples out"
                    )
                self._beside.append(item.beside)
                yield item._replace(label=checked_target(item, self._target))

    def arrays_beside(self) -> dict[str, np.ndarray]:
        """The groups and the order of all items, by name, once they have been read."""
        groups, order = zip(*self._beside, strict=True)
        keys = self.parts[0].keys.beside
        return keys.arrays(None if groups[0] is None else groups, order, f"data {self.name}")


def read(
    config: DataConfig,
    parts: dict[str, GivenPart],
    reading: Reading,
    reader: SampleReader | StructureReader,
    fields: Fields | None,
) -> Content:
    """The content of parts. Raises ConfigError."""
    train, val = parts["train"], parts.get("val")
    test, whole = parts.get("test", train), "test" not in parts
    ordered = [part for part in (train, val, parts.get("test")) if part is not None]
    check_names_agree(config.name, train, val, test)
    third = len(train) if train.has_third_values() else 0
    users = (*train.domains, *(name for name in test.domains if name not in train.domains))
    items = ItemStream(config.name, ordered)
    return Content(
        len(train) + len(val or ()),
        0 if whole else len(test),
        decoded_blocks(iter(items), reader, "sample"),
        kind=reader.kind,
        channels=getattr(reader, "constants", "first"),
        decisions=lambda targets: reader.decisions,
        fields=fields,
        categories=True,
        warnings=reader.remarks,
        val=len(val or ()),
        targets=partial(targets_of_parts, config, ordered, reading),
        domains=partial(users_of_parts, config, users, reading, third),
        remarks=partial(remarks_on, reader.transparent),
        one_part=whole,
        beside=items.arrays_beside,
    )


def users_of_parts(
    config: DataConfig, names: tuple[str, ...], reading: Reading, third: int, values: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of domains [rows] and their names. names: those that the parts declare.

    third: rows of the training part if users are the third values of items, else 0. Raises ConfigError.
    """
    if third:
        check_users(f"data {config.name}", values.tolist(), third)
    if not names:
        values = with_one_spelling(f"data {config.name}", "the users", values, reading.spelling)
    return domain_numbers(names, values)


def targets_of_parts(config: DataConfig, parts: Sequence[GivenPart], reading: Reading, values: np.ndarray) -> Targets:
    """The targets of these parts, of which the first is for training and the last, if another, for testing.

    Classes that the two parts name in different orders are matched by name. Raises ConfigError.
    """
    train, test, rows = parts[0], parts[-1], sum(map(len, parts[:-1]))
    names = (*train.classes, *(name for name in test.classes if name not in train.classes))
    if not names and config.task != "regression":
        values = with_one_spelling(f"data {config.name}", "the labels", values, reading.spelling)
    count = reading.classes or (None if names else train.count or test.count)
    try:
        if train.classes and test.classes and test.classes != train.classes:
            numbers = np.array([names.index(name) for name in test.classes])
            values = with_numbers_of_train(values, rows, len(train.classes), numbers)
        return refuse_count(reading.classes, read_targets(values, config.task, names, count))
    except TargetError as error:
        part, row = piece_of([(part, len(part)) for part in parts], error.row)
        raise ConfigError(f"{part.place(row)}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"data {config.name}: {error}") from None


def with_numbers_of_train(values: np.ndarray, rows: int, known: int, numbers: np.ndarray) -> np.ndarray:
    """The targets with the test part's classes as the training part numbers them.

    rows: before the test part. known: classes that the training part names. numbers: of the test part's classes.
    """
    train, test = values[:rows], values[rows:]
    if values.ndim > 2:
        raise ConfigError("train and test part name different classes; they must be the same for such targets")
    if values.ndim == 2:
        if sorted(numbers) != [*range(values.shape[1])]:
            raise ConfigError(
                "train and test part name different labels; they must be the same if each label has a column"
            )
        return np.concatenate([train, test[:, np.argsort(numbers)]])
    if values.dtype.kind not in "iubf" or (values != np.floor(values)).any():
        return values
    outside = np.concatenate([train >= known, (test < 0) | (test >= len(numbers))])
    if outside.any():
        row = int(outside.argmax())
        most = (known if row < rows else len(numbers)) - 1
        raise TargetError(row, f"label {values[row]} is outside the class range; 0 to {most}")
    return np.concatenate([train, numbers[test.astype(np.int64)]])
