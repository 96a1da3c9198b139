"""Data as objects in a Python process (`fedbench.user_code.given_data`), named `memory:KIND@DIGITS` by their content.

Other processes open the decoded copy in the cache, and need no object.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from pydantic import ConfigDict

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.items import DOMAIN_KEYS, TARGETS, GivenPart, Keys, arrays_of, named_columns
from fedbench.data.reading.parts import with_test_part
from fedbench.data.reading.tables import TableOptions, TableReader, join_parts, with_plain_names
from fedbench.data.sources import checked_data_options, factory
from fedbench.errors import ConfigError
from fedbench.user_code.given_data import GivenData, given_data

TABLE = "table"
HAS_COLUMNS = True


class Options(Section):
    model_config = ConfigDict(extra="allow")


def source(config: DataConfig, options: Options, progress: OnProgress | None, beside: Beside) -> Source:
    """The data of a name in this process, or their copy in the cache. Raises ConfigError."""
    given = given_data(config.name)
    if given is None:
        raise lost_data_error(config.name)
    if config.root:
        raise ConfigError(f"data.root = {str(config.root)!r}: data {config.name} are in memory; leave it out")
    key = json.dumps([config.options, config.task, *beside], sort_keys=True, default=str)
    if key not in given.sources:
        if not given.parts:
            return Source(config.name, partial(refuse_reading, config.name), options=given.decided.get(key, {}))
        if given.kind == TABLE:
            table = checked_data_options(config, TableOptions)
            decided = {**table.model_dump(), "task": config.task, **beside.decided}
            reader = TableReader(table, config.task, beside=beside)
            made = Source(config.name, partial(read_tables, config, given.parts, reader), options=decided)
        else:
            made = source_of_items(config, given, beside)
        given.sources[key] = made
        given.decided[key] = given.sources[key].options
    found: Source = given.sources[key]
    return found


def lost_data_error(name: str) -> ConfigError:
    return ConfigError(
        f"data {name}: these data are objects of another Python process; start there, or pass them again: "
        "Config(data=...)"
    )


def refuse_reading(name: str) -> Content:
    """Reads nothing. Raises ConfigError."""
    raise lost_data_error(name)


def read_tables(config: DataConfig, parts: Mapping[str, pd.DataFrame], reader: TableReader) -> Content:
    """Raises ConfigError."""
    where = f"data {config.name}"
    tables = {name: as_pandas(where, table, reader) for name, table in parts.items()}
    rows, whole = join_parts(where, tables)
    sizes = {name: len(table) for name, table in tables.items()}
    sizes, remarks = with_test_part(sizes, None, "")
    content = reader.content(rows, whole, sizes)
    return replace(content, warnings=(*content.warnings, *remarks))


def as_pandas(where: str, table: Any, reader: TableReader) -> pd.DataFrame:
    """A table of pandas with text as names of its columns, among them those of its index that are asked for.

    Raises ConfigError.
    """
    found: pd.DataFrame = (table.to_pandas() if hasattr(table, "to_pandas") else table).rename(columns=str)
    named = {reader.options.user, reader.options.label, *reader.beside} - {None, ""}
    known = {*DOMAIN_KEYS, *TARGETS, *named} - {*found.columns}
    found = found.reset_index([name for name in found.index.names if name in known])
    return with_plain_names(where, found)


def source_of_items(config: DataConfig, given: GivenData, beside: Beside) -> Source:
    """The source of arrays, columns and map-style data sets. Raises ConfigError."""
    reading = checked_data_options(config, factory.Reading)
    keys = Keys(reading.sample, reading.label, reading.user, beside)
    given_parts = {}
    for name, data in given.parts.items():
        if isinstance(data, tuple):  # columns, also of lists
            data = list(zip(*arrays_of(named_columns(data), f"data {config.name}, {name} item"), strict=True))
        given_parts[name] = GivenPart.of(config.name, name, data, keys)
    if len(given_parts) == 1:
        only = given_parts["train"]
        given_parts["train"] = replace(only, where=only.where.replace(", train item", ", item"))
    whole, reader, fields = factory.prepare_parts(config.name, [*given_parts.values()], reading, given.collate)
    parts, remarks = with_test_part(dict(zip(given_parts, whole, strict=True)), None, "")
    return factory.source_of_parts(config, parts, reading, reader, fields, remarks)
