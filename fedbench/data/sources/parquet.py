"""Parquet files in Hugging Face layout: a column of encoded images, one of labels, optionally one of domains.

Files without images are tables, read as CSV tables are.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types
from pydantic import Field

from fedbench.config import DataConfig
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.images import (
    Item,
    channels_of,
    checked_label,
    decoded_blocks,
    decoder,
    remarks_on,
)
from fedbench.data.reading.items import DOMAIN_KEYS, TARGETS
from fedbench.data.reading.listing import path_in_name
from fedbench.data.reading.parts import NAMES, with_test_part
from fedbench.data.reading.tables import TableOptions, TableReader, TableRows, with_plain_names
from fedbench.data.reading.targets import read_targets
from fedbench.errors import ConfigError, nearest
from fedbench.tasks.class_numbers import plain_numbers

LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class", "y")
DOMAIN_COLUMNS = ("domain", "domains")
IMAGES = ("image", "img", "images", "picture", "pixels")
PART_IN_NAME = re.compile(r"(?:^|[-_.=])(train|test|validation|valid|val)(?:[-_.]|$)", re.IGNORECASE)
COLUMN_FOLDER = re.compile(r"([^=]+)=(.*)")
"""Folders `name=value`, which hold a column in their names."""
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


@dataclass(frozen=True)
class ParquetColumns:
    """The columns, and the names of classes and domains from the files' metadata."""

    image: str
    label: str
    names: tuple[str, ...]
    domain: str | None = None
    domain_names: tuple[str, ...] = ()


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
    others = {*DOMAIN_KEYS, *TARGETS, options.user, options.label, *options.drop}
    encoded = any(is_encoded(field.type) for field in schema if field.name not in others)
    images = options.kind is None and bool(options.image_column or declared or usual or encoded)
    for key in TABLE_KEYS if images else ("size", "image_column"):
        if getattr(options, key) != Options.model_fields[key].default:
            other = "images: other columns are not read" if images else "no images"
            raise ConfigError(f"data.{key} = {getattr(options, key)}: {file} has {other}; leave it out")
    return images


def is_encoded(kind: Any) -> bool:
    """Whether a column of this type may hold encoded images: bytes, or a struct with bytes in it."""
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def table_content(
    path: Path, parts: dict[str, list[Path]], remarks: list[str], options: Options, task: str, beside: Beside
) -> Content:
    """The files as one table. Raises ConfigError."""
    no_features = [*options.drop, *beside]
    files = [file for own in parts.values() for file in own]
    in_folders = [columns_in_folders(file.relative_to(path)) if path.is_dir() else {} for file in files]
    tables = {
        file: load_columns(file, no_features, own)
        for file, own in zip(files, with_number_columns(in_folders), strict=True)
    }
    first = next(iter(tables))
    for file, table in tables.items():
        if table.dtypes.to_dict() != tables[first].dtypes.to_dict():
            raise ConfigError(f"{file}: columns or their types differ from those in {first.name}")
    with open_parquet(first) as opened:
        features = hugging_face_features(opened.schema_arrow)
    declared = of_kind(features, "ClassLabel")
    asked = options.model_copy(update={"label": options.label or (declared[0] if len(declared) == 1 else None)})
    names = declared_names(features, asked.label or "")
    owner = next(iter(in_folders[0])) if len(in_folders[0]) == 1 else None
    reader = TableReader(asked, task, names, options.classes, options.kind, beside, owner=owner)
    rows = TableRows(f"data parquet:{path}", [(file.name, len(table)) for file, table in tables.items()])
    sizes = {part: sum(len(tables[file]) for file in own) for part, own in parts.items()}
    found = reader.content(rows, pd.concat(tables.values(), ignore_index=True), sizes)
    return replace(found, warnings=(*remarks, *found.warnings))


def columns_in_folders(relative: Path) -> dict[str, str]:
    """The columns that folders `name=value` hold, but those of parts."""
    found = [COLUMN_FOLDER.fullmatch(name) for name in relative.parent.parts if not PART_IN_NAME.search(name)]
    return {unquote(own[1]): unquote(own[2]) for own in found if own}


def with_number_columns(columns: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The same columns, as numbers where all texts are plain whole numbers."""
    found: list[dict[str, Any]] = [dict(own) for own in columns]
    for name in columns[0]:
        numbers = plain_numbers(own.get(name, "") for own in columns) or ()
        for own, number in zip(found, numbers, strict=False):
            own[name] = number
    return found


def load_columns(file: Path, no_features: list[str], more: dict[str, Any]) -> pd.DataFrame:
    """The columns of a file without those of pandas' index. no_features: columns of any type. more: of its folders.

    Raises ConfigError.
    """
    with open_parquet(file) as opened:
        table = opened.read()
    if not table.num_rows:
        raise ConfigError(f"{file}: no rows in it")
    for place, column in enumerate(table.schema):
        if types.is_decimal(column.type):
            table = table.set_column(place, column.name, table.column(place).cast(pa.float64()))
        elif column.name not in no_features and not is_plain(column.type):
            kind = "bytes" if is_encoded(column.type) else column.type
            raise ConfigError(
                f"{file}: column {column.name} holds {kind}; numbers, booleans, text and lists of numbers are read, "
                f"--data.drop {column.name} leaves it out"
            )
    index = index_columns(table.schema)
    found = with_plain_names(str(file), table.to_pandas(ignore_metadata=True).drop(columns=index))
    return found.assign(**{name: value for name, value in more.items() if name not in found})


def index_columns(schema: Any) -> list[str]:
    """The columns of pandas' index, as pandas' metadata name them."""
    try:
        named = json.loads(schema.metadata[b"pandas"])["index_columns"]
        return [name for name in named if isinstance(name, str) and name in schema.names]
    except (KeyError, TypeError, ValueError):
        return []


def is_plain(kind: Any) -> bool:
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return is_text(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


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
    parts: dict[str, list[Path]] = {}
    for file in files:
        parts.setdefault(part_of(file.relative_to(path)), []).append(file)
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


def part_of(relative: Path) -> str:
    """train, test, val, or nothing, by the name of the file or its folder."""
    for name in (relative.stem, *reversed(relative.parent.parts)):
        if found := PART_IN_NAME.search(name):
            part = found[1].lower()
            return "val" if part.startswith("val") else part
    return ""


def check_shards(files: list[Path]) -> None:
    """Checks that each part is in one folder and no numbered shard is missing."""
    folders = sorted({folder_without_columns(file) for file in files})
    if len(folders) > 1:
        raise ConfigError(
            f"data parquet: both {folders[0]} and {folders[1]} hold this part; give the path of one of them"
        )
    numbered = [(file, found) for file in files if (found := SHARD.search(file.name))]
    present = {(int(found[1]), int(found[2])) for _, found in numbered}
    for file, found in numbered:
        for number in range(int(found[2])):
            if (number, int(found[2])) not in present:
                missing = SHARD.sub(f"-{number:05d}-of-{found[2]}", file.name, count=1)
                raise ConfigError(f"data parquet: {file.parent / missing} is missing, but {file.name} exists")


def read(path: Path, parts: dict[str, list[Path]], remarks: list[str], options: Options, beside: Beside) -> Content:
    rows = {file: row_count(file) for files in parts.values() for file in files}
    columns = agreed_columns(list(rows), options)
    train, val, test = (sum(rows[file] for file in parts.get(part, ())) for part in NAMES)
    classes = options.classes or len(columns.names)
    domains = domain_names(rows, columns)
    hidden = "; labels that are hidden cannot be used"
    hidden += ": data.test_part val uses the validation part for testing" if val else ""
    items = partial(items_of, rows, columns, domains, classes, hidden)
    transparent: list[str] = []
    decode = decoder(channels_of(items()), options.size, transparent)
    return Content(
        train + val,
        test,
        decoded_blocks(items(), decode),
        domain_names=domains,
        warnings=tuple(remarks),
        val=val,
        targets=partial(read_targets, task="classification", names=columns.names, classes=classes or None),
        remarks=partial(remarks_on, transparent),
        one_part="test" not in parts,
        beside=partial(columns_beside, list(rows), columns, beside),
    )


def columns_beside(files: list[Path], columns: ParquetColumns, beside: Beside) -> dict[str, Any]:
    """Groups and order of all rows, from columns beside the images. Raises ConfigError."""
    values: dict[str, list[Any]] = {name: [] for name in beside if name}
    for file in files:
        with open_parquet(file) as opened:
            found = beside.among(opened.schema_arrow.names, str(file), "column")
            for name in filter(None, found):
                own = opened.read([name]).column(name).to_pylist()
                if None in own:
                    raise ConfigError(f"{file}, row {own.index(None)}: no value in column {name}; fill it in")
                values[name] += own
    return found.arrays(values.get(found.group), values.get(found.order), str(files[0].parent))


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """The opened file; converts reading errors to ConfigError."""
    with (
        refuse_damage(file, "damaged or incomplete parquet file"),
        pq.ParquetFile(file, page_checksum_verification=True) as opened,
    ):
        yield opened


def folder_without_columns(file: Path) -> Path:
    return Path(*(name for name in file.parent.parts if not COLUMN_FOLDER.fullmatch(name) or PART_IN_NAME.search(name)))


def row_count(file: Path) -> int:
    with open_parquet(file) as opened:
        count: int = opened.metadata.num_rows
    if not count:
        raise ConfigError(f"{file}: no rows in it")
    return count


def agreed_columns(files: list[Path], options: Options) -> ParquetColumns:
    """The columns of the first file, which all others must have, with the same class names."""
    first, *others = files
    columns = find_columns(first, options)
    for file in others:
        if (found := find_columns(file, options)) != columns:
            what = "class names" if found.names != columns.names else "columns"
            raise ConfigError(f"{file}: {what} differ from those in {first.name}")
    return columns


def find_columns(file: Path, options: Options) -> ParquetColumns:
    """By option, else by the schema's Hugging Face metadata, else by name. Raises ConfigError."""
    with open_parquet(file) as opened:
        schema = opened.schema_arrow
    features = hugging_face_features(schema)
    image = pick_column(file, schema, "image", options.image_column, of_kind(features, "Image"), IMAGES)
    label = pick_column(file, schema, "label", options.label_column, of_kind(features, "ClassLabel"), LABEL_COLUMNS)
    domain = options.domain_column or next((name for name in DOMAIN_COLUMNS if name in schema.names), None)
    if domain:
        domain = pick_column(file, schema, "domain", domain, [], ())
    check_types(file, schema, image, label, domain)
    return ParquetColumns(image, label, declared_names(features, label), domain, declared_names(features, domain or ""))


def declared_names(features: dict[str, Any], column: str) -> tuple[str, ...]:
    names = features.get(column, {}).get("names")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def hugging_face_features(schema: Any) -> dict[str, Any]:
    """The `huggingface` metadata of each column; empty if missing or broken."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def of_kind(features: dict[str, Any], kind: str) -> list[str]:
    return [name for name, feature in features.items() if feature.get("_type") == kind]


def pick_column(
    file: Path, schema: Any, what: str, chosen: str | None, declared: list[str], usual: tuple[str, ...]
) -> str:
    """The column of images or labels."""
    if chosen:
        if chosen not in schema.names:
            raise ConfigError(
                f"data.{what}_column = {chosen!r}: no such column in {file}; {nearest(chosen, schema.names)}"
            )
        return chosen
    known = [name for name in declared if name in schema.names]
    for names in ([name for name in usual if name in known], known, [name for name in usual if name in schema.names]):
        if len(names) > 1:
            raise ConfigError(
                f"{file}: {' and '.join(names)} could be the {what}: set data.{what}_column to one of them"
            )
        if names:
            return names[0]
    raise ConfigError(
        f"{file}: which column holds the {what}s? Set data.{what}_column to one of {', '.join(schema.names)}"
    )


def check_types(file: Path, schema: Any, image: str, label: str, domain: str | None) -> None:
    if domain and not is_text(kind := schema.field(domain).type) and not types.is_integer(kind):
        raise ConfigError(f"{file}: column {domain} holds {kind}; domains are names or whole numbers")
    kind = schema.field(label).type
    if not (types.is_integer(kind) or types.is_boolean(kind)):
        raise ConfigError(f"{file}: column {label} holds {kind}; labels are whole numbers or booleans")
    kind = schema.field(image).type
    if not is_encoded(kind):
        raise ConfigError(
            f"{file}: column {image} holds {kind}; images are encoded bytes, or a struct with bytes in it (--data.kind "
            "feature or token reads a table of numbers)"
        )


def is_text(kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind))


def domain_names(files: Iterable[Path], columns: ParquetColumns) -> tuple[str, ...]:
    """Names of all domains: the declared ones, else the column's values in ascending order. Raises ConfigError."""
    if columns.domain is None or columns.domain_names:
        return columns.domain_names
    found = set()
    for file in files:
        with open_parquet(file) as opened:
            for batch in opened.iter_batches(batch_size=2**16, columns=[columns.domain]):
                found |= set(batch.column(columns.domain).unique().to_pylist())
    return tuple(map(str, sorted(found - {None})))


def items_of(
    files: Iterable[Path],
    columns: ParquetColumns,
    domains: tuple[str, ...],
    classes: int,
    hidden: str,
) -> Iterator[Item]:
    """The rows of these files in order. hidden: remark on labels of -1."""
    numbers = {name: i for i, name in enumerate(domains)}
    for file in files:
        for row, (image, label, domain) in enumerate(cell_values(file, columns)):
            where = f"{file}, row {row}"
            if image is None:
                raise ConfigError(f"{where}: no image bytes in column {columns.image}")
            known = parquet_domain(domain, columns, numbers, where) if columns.domain else None
            yield Item(image, checked_label(label, classes, where, hidden), where, known)


def parquet_domain(value: Any, columns: ParquetColumns, numbers: dict[str, int], where: str) -> int:
    """The number of a domain, from its name or its declared number. Raises ConfigError."""
    if value is None:
        raise ConfigError(f"{where}: the domain is missing")
    if columns.domain_names and isinstance(value, int):
        if not 0 <= value < len(numbers):
            raise ConfigError(f"{where}: domain {value} is outside the declared ones; 0 to {len(numbers) - 1}")
        return value
    if str(value) not in numbers:
        raise ConfigError(f"{where}: domain {value!r} is none of {', '.join(numbers)}")
    return numbers[str(value)]


def cell_values(file: Path, columns: ParquetColumns) -> Iterator[tuple[bytes | None, int | None, Any]]:
    """Encoded image, label and domain (None without such a column) of every row."""
    wanted = [name for name in (columns.image, columns.label, columns.domain) if name]
    with open_parquet(file) as opened:
        for batch in opened.iter_batches(batch_size=1024, columns=wanted):
            image, label = batch.column(columns.image), batch.column(columns.label)
            domains = batch.column(columns.domain).to_pylist() if columns.domain else [None] * len(label)
            if hasattr(image, "flatten") and image.type.num_fields:
                image = image.flatten()[image.type.get_field_index("bytes")]
            yield from zip(image.to_pylist(), label.to_pylist(), domains, strict=True)
