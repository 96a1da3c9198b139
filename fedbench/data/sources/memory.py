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
from fedbench.data.reading.items import DOMAIN_KEYS, TARGETS, GivenPart, Keys, arrays_of, named_columns
from fedbench.data.reading.parts import split_rows, with_test_part
from fedbench.data.reading.tables import TableOptions, TableReader, TableRows
from fedbench.data.sources import checked_data_options, factory
from fedbench.errors import ConfigError
from fedbench.user_code.given_data import GivenData, given_data

TABLE = "table"
NO_TEST_PART = (
    "the data have no test part: every fifth sample is for testing; where the partition pools both parts "
    "(partition.test = pooled), all samples are one part; partitions and predictions number the rows for training "
    "first, then those for testing"
)


class Options(Section):
    model_config = ConfigDict(extra="allow")


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    """The data of a name in this process, or their copy in the cache. Raises ConfigError."""
    given = given_data(config.name)
    if given is None:
        raise lost_data_error(config.name)
    if config.root:
        raise ConfigError(f"data.root = {str(config.root)!r}: data {config.name} are in memory; leave it out")
    key = json.dumps([config.options, config.task], sort_keys=True, default=str)
    if key not in given.sources:
        if not given.parts:
            return Source(config.name, partial(refuse_reading, config.name), options=given.decided.get(key, {}))
        if given.kind == TABLE:
            table = checked_data_options(config, TableOptions)
            decided = {**table.model_dump(), "task": config.task}
            made = Source(config.name, partial(read_tables, config, given.parts, table), options=decided)
        else:
            made = source_of_items(config, given)
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


def read_tables(config: DataConfig, parts: Mapping[str, pd.DataFrame], options: TableOptions) -> Content:
    """Raises ConfigError."""
    where = f"data {config.name}"
    tables = {name: as_pandas(where, table, options) for name, table in parts.items()}
    first, *others = tables.values()
    for table in others:
        if other := sorted({*first.columns} ^ {*table.columns}):
            raise ConfigError(f"{where}: the parts have different columns: one lacks {other[0]}")
    sizes = {name: len(table) for name, table in tables.items()}
    rows, whole = TableRows(where, list(sizes.items())), pd.concat([first, *others], ignore_index=True)
    sizes, remarks = with_test_part(sizes, None, "")
    content = TableReader(options, config.task).content(rows, whole, sizes)
    return replace(content, warnings=(*content.warnings, *remarks))


def as_pandas(where: str, table: Any, options: TableOptions) -> pd.DataFrame:
    """A table of pandas with text as names of its columns, among them targets and users of its index.

    Raises ConfigError.
    """
    found: pd.DataFrame = (table.to_pandas() if hasattr(table, "to_pandas") else table).rename(columns=str)
    known = {*DOMAIN_KEYS, *TARGETS, options.user, options.label} - {None, *found.columns}
    found = found.reset_index([name for name in found.index.names if name in known])
    if not len(found):
        raise ConfigError(f"{where}: no rows in it")
    if twice := found.columns[found.columns.duplicated()].tolist():
        raise ConfigError(f"{where}: two columns are called {twice[0]}; rename one")
    return found


def source_of_items(config: DataConfig, given: GivenData) -> Source:
    """The source of arrays, columns and map-style data sets. Raises ConfigError."""
    reading = checked_data_options(config, factory.Reading)
    keys = Keys(reading.sample, reading.label, reading.user)
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
    if "test" not in parts:
        split = zip(("train", "test"), split_rows(len(parts["train"])), strict=True)
        parts = {name: replace(parts["train"], rows=rows) for name, rows in split}
        remarks = [NO_TEST_PART]
    return factory.source_of_parts(config, parts, reading, reader, fields, remarks)
