"""Parquet files of images: columns of images, labels and perhaps domains, found by metadata or by name."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import types

from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.images import Item, checked_label
from fedbench.errors import ConfigError, nearest

LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class", "y")
DOMAIN_COLUMNS = ("domain", "domains")
IMAGES = ("image", "img", "images", "picture", "pixels")


@dataclass(frozen=True)
class ParquetColumns:
    """The columns, and the names of classes and domains from the files' metadata."""

    image: str
    label: str
    names: tuple[str, ...]
    domain: str | None = None
    domain_names: tuple[str, ...] = ()


@contextmanager
def open_parquet(file: Path) -> Iterator[Any]:
    """The opened file; converts reading errors to ConfigError."""
    with (
        refuse_damage(file, "damaged or incomplete parquet file"),
        pq.ParquetFile(file, page_checksum_verification=True) as opened,
    ):
        yield opened


def is_encoded(kind: Any) -> bool:
    """Whether a column of this type may hold encoded images: bytes, or a struct with bytes in it."""
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def row_count(file: Path) -> int:
    with open_parquet(file) as opened:
        count: int = opened.metadata.num_rows
    if not count:
        raise ConfigError(f"{file}: no rows in it")
    return count


def agreed_columns(files: list[Path], options: Any) -> ParquetColumns:
    """The columns of the first file, which all others must have, with the same class names."""
    first, *others = files
    columns = find_columns(first, options)
    for file in others:
        if (other := find_columns(file, options)) != columns:
            what = "class names" if other.names != columns.names else "columns"
            raise ConfigError(f"{file}: {what} differ from those in {first.name}")
    return columns


def find_columns(file: Path, options: Any) -> ParquetColumns:
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
    file: Path, schema: Any, what: str, option: str | None, declared: list[str], usual: tuple[str, ...]
) -> str:
    """The column of images or labels."""
    if option:
        if option not in schema.names:
            raise ConfigError(
                f"data.{what}_column = {option!r}: no such column in {file}; {nearest(option, schema.names)}"
            )
        return option
    columns = [name for name in declared if name in schema.names]
    for names in (
        [name for name in usual if name in columns],
        columns,
        [name for name in usual if name in schema.names],
    ):
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
    domains = set()
    for file in files:
        with open_parquet(file) as opened:
            domains |= {*opened.read([columns.domain]).column(columns.domain).unique().to_pylist()}
    return tuple(map(str, sorted(domains - {None})))


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
            number = parquet_domain(domain, columns, numbers, where) if columns.domain else None
            yield Item(image, checked_label(label, classes, where, hidden), where, number)


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
    names = [name for name in (columns.image, columns.label, columns.domain) if name]
    with open_parquet(file) as opened:
        for batch in opened.iter_batches(batch_size=1024, columns=names):
            image, label = batch.column(columns.image), batch.column(columns.label)
            domains = batch.column(columns.domain).to_pylist() if columns.domain else [None] * len(label)
            if hasattr(image, "flatten") and image.type.num_fields:
                image = image.flatten()[image.type.get_field_index("bytes")]
            yield from zip(image.to_pylist(), label.to_pylist(), domains, strict=True)


def columns_beside(files: list[Path], columns: ParquetColumns, beside: Beside) -> dict[str, Any]:
    """Groups and order of all rows, from columns beside the images. Raises ConfigError."""
    values: dict[str, list[Any]] = {name: [] for name in beside if name}
    for file in files:
        with open_parquet(file) as opened:
            names = beside.among(opened.schema_arrow.names, str(file), "column")
            for name in filter(None, names):
                column = opened.read([name]).column(name).to_pylist()
                if None in column:
                    raise ConfigError(f"{file}, row {column.index(None)}: no value in column {name}; fill it in")
                values[name] += column
    return names.arrays(values.get(names.group), values.get(names.order), str(files[0].parent))
