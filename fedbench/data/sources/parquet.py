"""Parquet files in Hugging Face layout: a column of encoded images, one of labels, optionally one of domains.

Files without images are tables, read as CSV tables are.
"""

import json
import re
from base64 import b64decode
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
from pandas.api.types import union_categoricals
from pyarrow import types
from pydantic import Field

from fedbench.config import DataConfig
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.images import image_content
from fedbench.data.reading.keys import is_usual
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.parquet_images import (
    IMAGES,
    agreed_columns,
    columns_beside,
    declared_names,
    domain_names,
    hugging_face_features,
    is_encoded,
    is_text,
    items_of,
    of_kind,
    open_parquet,
    row_count,
)
from fedbench.data.reading.parts import with_test_part
from fedbench.data.reading.table_columns import TableOptions
from fedbench.data.reading.tables import INDEX, TableReader, join_parts, with_plain_names
from fedbench.data.reading.targets import read_targets
from fedbench.errors import ConfigError
from fedbench.tasks.class_numbers import plain_numbers
from fedbench.user_code.parts import NAMES, PARTS, part_in_name

COLUMN_FOLDER = re.compile(r"([^=]+)=(.*)")
"""Folders `name=value`, which hold a column in their names."""
SPLITS = ("train", "test", "validation", "valid", "val")
"""Words that are parts wherever they stand."""
TABLE_KEYS = ("drop", "numbers", "categories", "spelling", "impute")
SHARD = re.compile(r"-(\d{5})-of-(\d{5})")


HAS_COLUMNS = True


class Options(TableOptions):
    kind: Literal["feature", "token"] | None = Field(
        None, description="kind of the samples of a table without images (default: by their type)"
    )
    label_column: str | None = Field(None, description="label column, like data.label")
    image_column: str | None = Field(None, description="image column (default: the one that looks like it)")
    domain_column: str | None = Field(
        None, description="column with each image's domain, like data.user (default: the one named domain, if any)"
    )
    size: int | None = Field(None, ge=1, description="resize every image to size x size pixels")
    classes: int | None = Field(None, ge=1, description="number of classes (default: from the files' class names)")
    test_part: Literal["test", "val"] | None = Field(
        None, description="part with the test images (default: test, or val if there is no test)"
    )


def source(config: DataConfig, options: Options, progress: OnProgress | None, beside: Beside) -> Source:
    path = path_in_name(config)
    label, domain = options.label_column or options.label, options.domain_column or options.user
    both = {"label": label, "label_column": label, "user": domain, "domain_column": domain}
    options = options.model_copy(update=both)
    parts, remarks = parquet_parts(path, options)
    files = tuple(chain.from_iterable(parts.values()))
    if holds_images(files[0], options):
        if folder := next((file.parent for file in files if columns_in_folders(file)), None):
            raise ConfigError(
                f"data parquet:{path}: {folder.name} is a column of tables, and {files[0].name} has images; write the "
                "column into the files, or give the path of one folder"
            )
        decided = {**options.model_dump(), **beside.decided}
        return Source(f"parquet:{path}", partial(read, path, parts, remarks, options, beside), files, decided)
    decided = {**options.model_dump(), "task": config.task, **beside.decided}
    reader = partial(table_content, path, parts, remarks, options, config.task, beside)
    return Source(f"parquet:{path}", reader, files, decided)


def holds_images(file: Path, options: Options) -> bool:
    """Whether a file has a column of images; else it is a table. Raises ConfigError for options of the other kind."""
    with open_parquet(file) as opened:
        schema = opened.schema_arrow
    declared, usual = of_kind(hugging_face_features(schema), "Image"), {*IMAGES} & {*schema.names}
    others = {options.user, options.label, *options.drop}
    others |= {name for name in schema.names if is_usual(name, "user") or is_usual(name, "label")}
    encoded = any(is_encoded(field.type) for field in schema if field.name not in others)
    images = options.kind is None and bool(options.image_column or declared or usual or encoded)
    for key in TABLE_KEYS if images else ("size", "image_column"):
        if getattr(options, key) != Options.model_fields[key].default:
            other = "images: other columns are not read" if images else "no images"
            raise ConfigError(f"data.{key} = {getattr(options, key)}: {file} has {other}; leave it out")
    return images


def table_content(
    path: Path, parts: dict[str, list[Path]], remarks: list[str], options: Options, task: str, beside: Beside
) -> Content:
    """The files as one table. Raises ConfigError."""
    no_features = [*options.drop, *beside]
    files = [file for paths in parts.values() for file in paths]
    in_folders = [columns_in_folders(file.relative_to(path)) if path.is_dir() else {} for file in files]
    tables = {
        file: load_columns(file, no_features, values, options)
        for file, values in zip(files, with_number_columns(in_folders), strict=True)
    }
    first = next(iter(tables))
    require_same_columns(tables, first)
    tables = with_one_dictionary(tables)
    with open_parquet(first) as opened:
        features = hugging_face_features(opened.schema_arrow)
    declared = of_kind(features, "ClassLabel")
    table_options = options.model_copy(update={"label": options.label or (declared[0] if len(declared) == 1 else None)})
    names = declared_names(features, table_options.label or "")
    owner = next(iter(in_folders[0])) if len(in_folders[0]) == 1 else None
    reader = TableReader(table_options, task, names, options.classes, options.kind, beside, owner=owner)
    rows, whole = join_parts(f"data parquet:{path}", [(file.name, table) for file, table in tables.items()])
    sizes = {part: sum(len(tables[file]) for file in paths) for part, paths in parts.items()}
    content = reader.content(rows, whole, sizes)
    with open_parquet(first) as opened:
        out = index_columns(opened.schema_arrow, no_features, options)
    lines = [
        f"index {name} is left out; --data.numbers {name} or --data.categories {name} makes it a feature"
        for name in out
        if not name.startswith(INDEX)
    ]
    return replace(content, warnings=(*remarks, *lines, *content.warnings))


def require_same_columns(tables: dict[Path, pd.DataFrame], first: Path) -> None:
    """Raises ConfigError for files with other columns than the first, or with another type of one.

    Where values are missing, and in the texts of dictionaries, files may differ.
    """
    for file, table in tables.items():
        differ = f"{file}: columns or their types differ from those in {first.name}"
        if other := sorted({*table.columns} ^ {*tables[first].columns}):
            raise ConfigError(f"{differ}: one lacks {other[0]}")
        for name, column in tables[first].items():
            kind, usual = value_type(table[name]), value_type(column)
            if table[name].dtype != column.dtype and kind != usual and kind and usual:
                remedy = "" if is_usual(name, "label") else f", or --data.drop {name}"
                raise ConfigError(f"{differ}: column {name} holds {kind} and {usual}; write one{remedy}")


def value_type(column: pd.Series) -> str:
    """The type of a column's values; empty if it has none. Whole numbers stay whole where some are missing."""
    values = column.dropna().infer_objects()
    if isinstance(values.dtype, pd.CategoricalDtype):
        return str(values.dtype.categories.dtype) if len(values) else ""
    if values.dtype.kind == "f" and len(values) < len(column) and (values % 1 == 0).all():
        return "int64" if len(values) else ""
    return str(values.dtype) if len(values) else ""


def with_one_dictionary(tables: dict[Path, pd.DataFrame]) -> dict[Path, pd.DataFrame]:
    """The tables, with the categories of all files in every column that is one of categories everywhere."""
    first = next(iter(tables.values()))
    for name in first.columns:
        columns = [table[name] for table in tables.values()]
        if all(isinstance(column.dtype, pd.CategoricalDtype) for column in columns):
            joint = union_categoricals(columns, sort_categories=True, ignore_order=True).dtype
            tables = {file: table.assign(**{name: table[name].astype(joint)}) for file, table in tables.items()}
    return tables


def columns_in_folders(relative: Path) -> dict[str, str]:
    """The columns that folders `name=value` hold, but those of parts."""
    matches = map(column_in_folder, relative.parent.parts)
    return {unquote(match[1]): unquote(match[2]) for match in matches if match}


def with_number_columns(columns: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The same columns, as numbers where all texts are plain whole numbers."""
    columns_with_numbers: list[dict[str, Any]] = [dict(values) for values in columns]
    for name in columns[0]:
        numbers = plain_numbers(values.get(name, "") for values in columns) or ()
        for values, number in zip(columns_with_numbers, numbers, strict=False):
            values[name] = number
    return columns_with_numbers


def load_columns(file: Path, no_features: list[str], more: dict[str, Any], options: Options) -> pd.DataFrame:
    """The columns of a file, and those of pandas' index that have a role. more: columns of its folders.

    no_features: columns of any type. Raises ConfigError.
    """
    with open_parquet(file) as opened:
        table, categories = opened.read(), number_categories(opened)
    if not table.num_rows:
        raise ConfigError(f"{file}: no rows in it")
    for number, column in enumerate(table.schema):
        if types.is_decimal(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.float64()))
        elif column.name not in no_features and not is_plain(column.type):
            kind = "bytes" if is_encoded(column.type) else column.type
            raise ConfigError(
                f"{file}: column {column.name} holds {kind}; numbers, booleans, text and lists of numbers are read, "
                f"--data.drop {column.name} leaves it out"
            )
    index = index_columns(table.schema, [*no_features, *more], options)
    frame = with_plain_names(
        str(file), table.replace_schema_metadata().to_pandas(categories=categories).drop(columns=index)
    )
    return frame.assign(**{name: value for name, value in more.items() if name not in frame})


def number_categories(opened: Any) -> list[str]:
    """The columns of an open file that its author has as categories of numbers, which Arrow reads as plain numbers."""
    declared = (opened.metadata.metadata or {}).get(b"ARROW:schema")
    if declared is None:
        return []
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(declared)))
    plain = {field.name for field in opened.schema_arrow if not types.is_dictionary(field.type)}
    return [field.name for field in schema if types.is_dictionary(field.type) and field.name in plain]


def index_columns(schema: Any, named: list[str], options: Options) -> list[str]:
    """The columns of pandas' index, as pandas' metadata name them, that are no target, no user and not named."""
    try:
        index = json.loads(schema.metadata[b"pandas"])["index_columns"]
        names = [name for name in index if isinstance(name, str) and name in schema.names]
    except (KeyError, TypeError, ValueError):
        return []
    named = [*named, *options.numbers, *options.categories, *filter(None, [options.user, options.label])]
    return [name for name in names if name not in named and not is_usual(name, "user") and not is_usual(name, "label")]


def is_plain(kind: Any) -> bool:
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return (
        is_text(kind)
        or types.is_null(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
    )


def parquet_parts(path: Path, options: Options) -> tuple[dict[str, list[Path]], list[str]]:
    """Files of the parts train, val and test, and remarks. Raises ConfigError.

    Only `train` if the names do not give parts.
    """
    if path.is_file():
        return {"train": [path]}, []
    files = sorted(path.rglob("*.parquet"))
    if not files:
        raise ConfigError(
            f"data parquet:{path}: " + ("no *.parquet file in it" if path.is_dir() else "no such file or folder")
        )
    parts = files_by_part(path, files, PARTS)
    if "train" not in parts or not parts.keys() - {"train", ""}:  # else words such as dev may mean something else
        parts = files_by_part(path, files, SPLITS)
    for part in parts.values():
        check_shards(part)
    if set(parts) == {""}:
        return {"train": files}, []
    if "train" not in parts:
        raise ConfigError(
            f"data parquet:{path}: no file for the training part; names like train-00000-of-00001.parquet"
        )
    remarks = [f"ignored, because its name gives no part: {file.relative_to(path)}" for file in parts.pop("", ())]
    ordered = {part: parts[part] for part in NAMES if part in parts}
    chosen, lines = with_test_part(ordered, options.test_part, f"{path} has no such files")
    return chosen, remarks + lines


def files_by_part(path: Path, files: Sequence[Path], words: Collection[str]) -> dict[str, list[Path]]:
    """Files below a path by train, test, val, or nothing, which is a word of their names or else of their folders'."""
    parts: dict[str, list[Path]] = {}
    for file in files:
        relative = file.relative_to(path)
        folders = [name for name in reversed(relative.parent.parts) if not column_in_folder(name)]
        found = next(filter(None, (part_in_name(name, words) for name in (relative.stem, *folders))), "")
        parts.setdefault(found, []).append(file)
    return parts


def column_in_folder(name: str) -> re.Match[str] | None:
    """The name and value of the column that a folder holds; None for others, such as `split=test`."""
    match = COLUMN_FOLDER.fullmatch(name)
    return None if match and (match[1] in ("split", "part") or match[2].lower() in SPLITS) else match


def check_shards(files: list[Path]) -> None:
    """Checks that each part is in one folder and no numbered shard is missing."""
    folders = sorted({folder_without_columns(file) for file in files})
    if len(folders) > 1:
        raise ConfigError(
            f"data parquet: both {folders[0]} and {folders[1]} hold this part; give the path of one of them"
        )
    numbered = [(file, shard) for file in files if (shard := SHARD.search(file.name))]
    present = {(int(shard[1]), int(shard[2])) for _, shard in numbered}
    for file, shard in numbered:
        for number in range(int(shard[2])):
            if (number, int(shard[2])) not in present:
                missing = SHARD.sub(f"-{number:05d}-of-{shard[2]}", file.name, count=1)
                raise ConfigError(f"data parquet: {file.parent / missing} is missing, but {file.name} exists")


def read(path: Path, parts: dict[str, list[Path]], remarks: list[str], options: Options, beside: Beside) -> Content:
    rows = {file: row_count(file) for files in parts.values() for file in files}
    columns = agreed_columns(list(rows), options)
    sizes = {part: sum(rows[file] for file in files) for part, files in parts.items()}
    classes = options.classes or len(columns.names)
    domains = domain_names(rows, columns)
    hidden = "; labels that are hidden cannot be used"
    hidden += ": data.test_part val uses the validation part for testing" if sizes.get("val") else ""
    items = partial(items_of, rows, columns, domains, classes, hidden)
    return image_content(
        sizes,
        items,
        options.size,
        None,
        domain_names=domains,
        warnings=tuple(remarks),
        targets=partial(read_targets, task="classification", names=columns.names, classes=classes or None),
        beside=partial(columns_beside, list(rows), columns, beside),
    )


def folder_without_columns(file: Path) -> Path:
    return Path(*(name for name in file.parent.parts if not column_in_folder(name)))
