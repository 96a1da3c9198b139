"""Data as objects in a Python process (`fedbench.user_code.given_data`), named `memory:KIND@DIGITS` by their content.

Other processes open the decoded copy in the cache, and need no object.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from pydantic import ConfigDict

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.description import Decision
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.columns import arrays_of, named_columns
from fedbench.data.reading.items import GivenPart, Keys
from fedbench.data.reading.keys import is_usual
from fedbench.data.reading.parts import with_test_part
from fedbench.data.reading.table_columns import TableOptions
from fedbench.data.reading.tables import TableReader, join_parts, with_plain_names
from fedbench.data.sources import checked_data_options, factory
from fedbench.errors import ConfigError
from fedbench.tasks.class_numbers import NAMES_SHOWN
from fedbench.tasks.targets import Targets
from fedbench.user_code.forms import form_of, holds_frame
from fedbench.user_code.given_data import GivenData, given_data
from fedbench.user_code.parts import ByClient, SectionKeys, entries_by_client, pieces_in, with_one_order

TABLE = "table"
HAS_COLUMNS = True


class Options(Section):
    model_config = ConfigDict(extra="allow")


def source(config: DataConfig, options: Options, progress: OnProgress | None, beside: Beside) -> Source:
    """The data of a name in this process, or their copy in the cache. Raises ConfigError."""
    data = given_data(config.name)
    if data is None:
        refuse_reading(config.name)
    if config.root:
        raise ConfigError(f"data.root = {str(config.root)!r}: data {config.name} are in memory; leave it out")
    key = json.dumps([config.options, config.task, *beside], sort_keys=True, default=str)
    if key not in data.sources:
        if not data.parts:
            return Source(config.name, partial(refuse_reading, config.name), options=data.decided.get(key, {}))
        data.sources[key] = source_of_objects(config, data, beside)
        data.decided[key] = data.sources[key].options
    source: Source = data.sources[key]
    return source


def source_of_objects(config: DataConfig, data: GivenData, beside: Beside) -> Source:
    """The source of tables, or of anything with items. Raises ConfigError."""
    if data.kind != TABLE:
        return source_of_items(config, data, beside)
    table = checked_data_options(config, TableOptions)
    # What was passed apart is the label and the user, whatever the columns of the samples are called.
    table = table.model_copy(update={key: key for key in data.joined if getattr(table, key) is None})
    decided = {**table.model_dump(), "task": config.task, **beside.decided}
    reader = TableReader(table, config.task, beside=beside)
    return Source(config.name, partial(read_tables, config, data.parts, reader), options=decided)


def source_of_factory(config: DataConfig, function: Any, beside: Beside) -> Source:
    """What a function package.module:factory makes: two parts, or data in another form that `parts_of` understands.

    Raises ConfigError.
    """
    arguments = factory.factory_arguments(config, function)
    made = factory.data_of(config, function, arguments)
    options = {key: value for key, value in config.options.items() if key not in arguments}
    reading = DataConfig(name=config.name, task=config.task, **options)
    keys = SectionKeys(config.task, options.get("user"))
    if is_pair_of_sets(made, keys):
        source = factory.source(reading, with_one_order(made), beside)
    else:
        try:
            data = GivenData.of(config.name, made, keys)
        except ConfigError as error:
            raise ConfigError(
                f"data {config.name}: expected factory(train: bool), or factory() that returns (train, test) or other "
                f"data; {error}"
            ) from None
        source = source_of_objects(reading, data, beside)
        source = replace(source, options={**source.options, "digest": data.digest})
    return replace(source, options={**source.options, "arguments": arguments})


def is_pair_of_sets(made: Any, keys: SectionKeys) -> bool:
    """Whether a factory made the parts train and test, neither of them of clients or with frames."""
    if not isinstance(made, dict) or [*made] != ["train", "test"]:
        return False
    return not holds_frame(made["train"]) and not entries_by_client(made["train"], keys)


def refuse_reading(name: str) -> NoReturn:
    """Raises ConfigError for data of which this process has neither the objects nor a copy in the cache."""
    raise ConfigError(
        f"data {name}: these data are objects of another Python process; start there, or pass them again: "
        "Config(data=...)"
    )


def read_tables(config: DataConfig, parts: Mapping[str, Any], reader: TableReader) -> Content:
    """The content of the tables of all parts, with their clients if they have any. Raises ConfigError."""
    where = f"data {config.name}"
    pieces = {part: [as_pandas(where, table, reader) for table in pieces_in(tables)] for part, tables in parts.items()}
    rows, whole = join_parts(where, [(part, table) for part, tables in pieces.items() for table in tables])
    sizes = {part: sum(map(len, tables)) for part, tables in pieces.items()}
    sizes, remarks = with_test_part(sizes, None, "")
    content = reader.content(rows, whole, sizes)
    content = replace(content, warnings=(*content.warnings, *remarks))
    return with_clients(where, content, parts, [len(table) for tables in pieces.values() for table in tables])


def with_clients(where: str, content: Content, parts: Mapping[str, Any], sizes: Sequence[int]) -> Content:
    """The content with the clients of its parts as domains, if they have any. sizes: of their pieces, in order."""
    if not isinstance(parts["train"], ByClient):
        return content
    names, clients = tuple(parts["train"]), [client for part in parts.values() for client in part]
    numbers = np.repeat([names.index(client) for client in clients], sizes)
    shown = ", ".join(names) if len(names) <= NAMES_SHOWN else f"{names[0]}, {names[1]}, ..., {names[-1]}"
    decision = Decision("clients", f"the {len(names)} entries of the data are the clients {shown}, in this order")

    def blocks() -> Iterator[Block]:
        start = 0
        for block in content.blocks:
            if block.domains is not None:
                raise ConfigError(
                    f"{where}: its {len(names)} entries are clients, and their rows have users too; join the entries "
                    "for clients by user, or leave the users out"
                )
            yield replace(block, domains=numbers[start : start + len(block.samples)])
            start += len(block.samples)

    def decisions(targets: Targets) -> Iterator[Decision]:
        yield from content.decisions(targets)
        yield decision

    return replace(content, blocks=blocks(), domains=None, domain_names=names, decisions=decisions)


def as_pandas(where: str, table: Any, reader: TableReader) -> pd.DataFrame:
    """A table of pandas with text as names of its columns, among them those of its index that are asked for.

    Raises ConfigError.
    """
    frame: pd.DataFrame = (table.to_pandas() if hasattr(table, "to_pandas") else table).rename(columns=str)
    named = {reader.options.user, reader.options.label, *reader.beside} - {None, ""}
    new = [name for name in frame.index.names if name not in frame.columns]
    frame = frame.reset_index(
        [name for name in new if name in named or is_usual(name, "user") or is_usual(name, "label")]
    )
    return with_plain_names(where, frame)


def source_of_items(config: DataConfig, data: GivenData, beside: Beside) -> Source:
    """The source of arrays, columns and map-style data sets. Raises ConfigError."""
    reading = checked_data_options(config, factory.Reading)
    keys = Keys(reading.sample, reading.label, reading.user, beside)
    parts = {name: part_of_items(config.name, name, part, keys) for name, part in data.parts.items()}
    if len(parts) == 1:
        parts["train"] = replace(parts["train"], where=parts["train"].where.replace(", train item", ", item"))
    parts, remarks = with_test_part(parts, None, "")
    source = factory.source_of_parts(config, parts, reading, remarks, collate=data.collate)
    sizes = [size for part in parts.values() for size in part.sizes]
    where = f"data {config.name}"
    return replace(source, read=lambda: with_clients(where, source.read(), data.parts, sizes))


def part_of_items(name: str, part: str, data: Any, keys: Keys) -> GivenPart:
    """A part, or those of clients one after another. Raises ConfigError."""
    if not isinstance(data, ByClient):
        return GivenPart.of(name, part, as_items(data, f"data {name}, {part} item"), keys)
    pieces = []
    for client, items in data.items():
        called = f"client {client}, {part}"
        pieces.append(GivenPart.of(name, called, as_items(items, f"data {name}, {called} item"), keys))
    return GivenPart.joined(pieces)


def as_items(data: Any, where: str) -> Any:
    """Columns, also of lists, as items. Raises ConfigError."""
    if not isinstance(data, tuple) or form_of(data) != "arrays":
        return data
    return list(zip(*arrays_of(named_columns(data), where), strict=True))
