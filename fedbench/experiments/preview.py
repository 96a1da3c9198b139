"""What the page of a data set shows, gathered from the data set and, where one is asked for, a partition of it."""

from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import Config
from fedbench.data import Dataset, Partition, cache
from fedbench.data.constants import CONSTANTS, MEASURED
from fedbench.report.preview import Preview, Sheet, Table, write_preview

MOST_CLASSES = 30
PER_CLASS = 10
MOST_CLIENTS = 200


def preview(dataset: Dataset, config: Config, parted: Partition | None, path: Path) -> Path:
    """Writes the page and returns its path."""
    counts = np.stack([np.bincount(part, minlength=dataset.classes) for part in parts(dataset)], axis=1)
    return write_preview(
        path,
        Preview(
            title=dataset.name,
            about=about(dataset),
            tiles=tiles(dataset),
            sheets=sheets(dataset, counts),
            sheet_intro=sheet_intro(dataset),
            classes=class_names(dataset),
            bars=counts,
            domains=domain_table(dataset),
            partition=parted and partition_table(dataset, parted),
            partition_intro=partition_intro(config, parted) if parted else "",
            facts=facts(dataset, config, parted),
            notes=(*dataset.notes, *(parted.notes if parted else ())),
        ),
    )


def parts(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the training and of the test part."""
    return dataset.labels[: dataset.train_rows], dataset.labels[dataset.train_rows :]


def class_names(dataset: Dataset) -> tuple[str, ...]:
    return dataset.class_names or tuple(map(str, range(dataset.classes)))


def about(dataset: Dataset) -> str:
    channels, height, width = dataset.shape
    colour = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    domains = f" in {len(dataset.domain_names)} domains" if dataset.domain_names else ""
    return f"{len(dataset.labels):,} {colour} images of {width} × {height} pixels, {dataset.classes} classes{domains}"


def tiles(dataset: Dataset) -> list[tuple[str, str, str]]:
    channels, height, width = dataset.shape
    found = [
        (f"{dataset.train_rows:,}", "training images", ""),
        (f"{dataset.test_rows:,}", "test images", ""),
        (f"{dataset.classes}", "classes", ""),
        (f"{width} × {height}", "pixels", f"{channels} channel{'s' if channels > 1 else ''}"),
        (size_text(dataset.images.nbytes), "decoded", "mapped, one copy per machine"),
    ]
    if dataset.domain_names:
        found.insert(3, (f"{len(dataset.domain_names)}", "domains", ""))
    return found


def size_text(count: int) -> str:
    """Bytes in words."""
    unit, scale = next((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= s or u == "kB")
    return f"{count / scale:.3g} {unit}"


def sheets(dataset: Dataset, counts: np.ndarray) -> list[Sheet]:
    """Training images of each of the first classes, evenly spread over the class, or over its domains."""
    names, train = class_names(dataset), dataset.labels[: dataset.train_rows]
    made = []
    for label in range(min(dataset.classes, MOST_CLASSES)):
        rows = chosen(dataset, np.flatnonzero(train == label))
        text = f"{counts[label, 0]:,} + {counts[label, 1]:,}"
        domains = dataset.domains[rows] if dataset.domains is not None else []
        captions = tuple(dataset.domain_names[d] for d in domains)
        made.append(Sheet(names[label], text, np.asarray(dataset.images[rows]), captions))
    return made


def chosen(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Some of these rows: PER_CLASS in all, or of each domain as many as makes about that many, one at least."""
    if dataset.domains is None:
        return spread(rows, PER_CLASS)
    each = max(1, PER_CLASS // len(dataset.domain_names))
    groups = [rows[dataset.domains[rows] == d] for d in range(len(dataset.domain_names))]
    return np.concatenate([spread(group, each) for group in groups])


def spread(rows: np.ndarray, count: int) -> np.ndarray:
    """At most count of them, at even distances."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)] if len(rows) else rows


def sheet_intro(dataset: Dataset) -> str:
    few = f"The first {MOST_CLASSES} of {dataset.classes} classes. " if dataset.classes > MOST_CLASSES else ""
    return f"{few}Training images as decoded, evenly spread over each class; training + test images beside the name."


def domain_table(dataset: Dataset) -> Table | None:
    if dataset.domains is None:
        return None
    counts = np.zeros((len(dataset.domain_names), dataset.classes), np.int64)
    np.add.at(counts, (dataset.domains, dataset.labels), 1)
    train = np.bincount(dataset.domains[: dataset.train_rows], minlength=len(counts))
    right = tuple(f"{own:,} + {all_ - own:,}" for own, all_ in zip(train, counts.sum(axis=1), strict=True))
    return Table(dataset.domain_names, class_names(dataset), counts, right)


def partition_table(dataset: Dataset, parted: Partition) -> Table:
    """Training images of each client and class; right of them how many it has to train, validate and test."""
    clients = parted.clients[:MOST_CLIENTS]
    counts = np.stack([np.bincount(dataset.labels[own.train], minlength=dataset.classes) for own in clients])
    right = tuple(f"{len(own.train):,} + {len(own.val):,} + {len(own.test):,}" for own in clients)
    rows = tuple(client_name(dataset, number, own.train) for number, own in enumerate(clients))
    return Table(rows, class_names(dataset), counts, right)


def client_name(dataset: Dataset, number: int, rows: np.ndarray) -> str:
    """Its number, and its domain where all its images are of one."""
    if dataset.domains is None or not len(rows) or len(held := np.unique(dataset.domains[rows])) > 1:
        return f"client {number}"
    return f"client {number}, {dataset.domain_names[held[0]]}"


def partition_intro(config: Config, parted: Partition) -> str:
    seed = config.seeds[0] if config.partition.seed is None else config.partition.seed
    few = f" The first {MOST_CLIENTS} of {len(parted.clients)} clients." if len(parted.clients) > MOST_CLIENTS else ""
    return (
        f"Training images per client and class: {config.partition.name}, seed {seed}.{few} "
        "Beside each client its images to train, validate and test."
    )


def facts(dataset: Dataset, config: Config, parted: Partition | None) -> list[tuple[str, str]]:
    assert dataset.folder is not None
    source = CONSTANTS[dataset.name].source if dataset.name in CONSTANTS else MEASURED
    if config.data.mean or config.data.std:
        source = "data.mean, data.std"
    found: list[tuple[str, Any]] = [
        ("mean", ", ".join(f"{value:.4f}" for value in dataset.mean)),
        ("deviation", ", ".join(f"{value:.4f}" for value in dataset.std)),
        ("constants from", source),
        ("cache", f"{dataset.folder} ({size_text(cache.size(dataset.folder))})"),
    ]
    if parted:
        asked = {k: v for k, v in config.partition.model_dump().items() if k in config.partition.model_fields_set}
        found += [(f"partition.{key}", value) for key, value in {"name": config.partition.name, **asked}.items()]
        found.append(("partition fingerprint", parted.fingerprint()))
    return [(key, str(value)) for key, value in found]
