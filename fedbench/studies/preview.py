"""Gathers the content of a data set's page from the data set and, if requested, a partition of it."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.data import Dataset, Partition, cache
from fedbench.data.reading.published import MEASURED
from fedbench.data.sources import published_of
from fedbench.jobs.shown_samples import as_bytes
from fedbench.report.preview import CountTable, Preview, Sheet, write_preview
from fedbench.results.quantities import size

MOST_CLASSES = 30
PER_CLASS = 10
MOST_CLIENTS = 200
BINS = 10
"""Number of bins for numeric targets."""
NUMBERS = "target numbers"


@dataclass(frozen=True)
class TargetGroups:
    """The groups in which samples are counted: classes, numbers of labels, or bins of the (first) target number.

    All samples are one group if each has a class at every position. of: the group of each row, int64 [rows]. outputs:
    what a network returns, in the plural; by: the quantity by which samples are counted.
    """

    names: tuple[str, ...]
    of: np.ndarray
    outputs: str
    by: str

    @classmethod
    def from_dataset(cls, dataset: Dataset) -> "TargetGroups":
        if dataset.classes:
            names = dataset.class_names or tuple(map(str, range(dataset.classes)))
            return cls(names, dataset.labels, "classes", "class")
        if dataset.task == "multilabel":
            held = dataset.targets.sum(axis=1).astype(np.int64)
            names = tuple(plural(count, "label") for count in range(held.max() + 1))
            return cls(names, held, "labels at once", "number of labels")
        if dataset.scores:
            return cls(("samples",), np.zeros(len(dataset.targets), np.int64), "scores at each position", "part")
        values = dataset.targets.reshape(len(dataset.targets), -1)[:, 0]
        edges = np.linspace(values.min(), values.max(), BINS + 1)
        names = tuple(f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges))
        of = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, BINS - 1)
        return cls(names, of, NUMBERS, "range of the target")

    def counts(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.bincount(self.of[rows], minlength=len(self.names))


def preview(dataset: Dataset, config: Config, parted: Partition | None, path: Path) -> Path:
    """Writes the page and returns its path."""
    groups = TargetGroups.from_dataset(dataset)
    bars = np.stack([groups.counts(slice(dataset.train_rows)), groups.counts(slice(dataset.train_rows, None))], axis=1)
    return write_preview(
        path,
        Preview(
            title=dataset.name,
            about=describe_dataset(dataset, groups),
            tiles=tiles(dataset, groups),
            sheets=sheets(dataset, groups, bars) if dataset.holds_images and dataset.classes else [],
            sheet_intro=sheet_intro(dataset),
            classes=groups.names,
            bars=bars,
            domains=domain_table(dataset, groups),
            partition=partition_table(dataset, groups, parted) if parted else None,
            partition_intro=partition_intro(dataset, groups, config, parted) if parted else "",
            facts=data_facts(dataset, config, parted),
            noun=noun(dataset),
            group=groups.by,
            warnings=(*dataset.remarks, *(parted.warnings if parted else ())),
        ),
    )


def noun(dataset: Dataset) -> str:
    return "images" if dataset.holds_images else "samples"


def describe_dataset(dataset: Dataset, groups: TargetGroups) -> str:
    domains = f" in {len(dataset.domain_names)} domains" if dataset.domain_names else ""
    learnt = f"{dataset.outputs} {groups.outputs}"
    if groups.outputs == NUMBERS:
        learnt = f"{dataset.task} of {plural(dataset.outputs, 'number')}"
    return f"{len(dataset.targets):,} {describe_samples(dataset)}, {learnt}{domains}"


def describe_samples(dataset: Dataset) -> str:
    if dataset.kind == "fields":
        return f"samples of {dataset.fields}"
    if not dataset.holds_images:
        return f"samples of {' × '.join(map(str, dataset.shape))} {dataset.kind}s"
    channels, height, width = dataset.shape
    colour = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{colour} images of {width} × {height} pixels"


def tiles(dataset: Dataset, groups: TargetGroups) -> list[tuple[str, str, str]]:
    shown = [
        (f"{dataset.train_rows:,}", f"training {noun(dataset)}", ""),
        (f"{dataset.test_rows:,}", f"test {noun(dataset)}", ""),
    ]
    if dataset.one_part:
        shown = [(f"{len(dataset.targets):,}", noun(dataset), "in one part, of which a partition holds some out")]
    shown.append((f"{dataset.outputs}", groups.outputs, ""))
    if dataset.domain_names:
        shown.append((f"{len(dataset.domain_names)}", "domains", ""))
    if dataset.holds_images:
        channels, height, width = dataset.shape
        shown.append((f"{width} × {height}", "pixels", plural(channels, "channel")))
    else:
        what = "numbers" if dataset.kind == "fields" else f"{dataset.kind}s"
        shown.append((" × ".join(map(str, dataset.shape)), what, "of each sample"))
    return [*shown, (size(dataset.samples.nbytes), "decoded", "mapped, one copy per machine")]


def sheets(dataset: Dataset, groups: TargetGroups, counts: np.ndarray) -> list[Sheet]:
    """Training images of each of the first classes, evenly spread over the class or its domains."""
    train = dataset.labels[: dataset.train_rows]
    made = []
    for label in range(min(dataset.classes, MOST_CLASSES)):
        rows = sample_rows(dataset, np.flatnonzero(train == label))
        text = f"{counts[label, 0]:,}" + ("" if dataset.one_part else f" + {counts[label, 1]:,}")
        domains = dataset.domains[rows] if dataset.domains is not None else []
        captions = tuple(dataset.domain_names[d] for d in domains)
        made.append(Sheet(groups.names[label], text, as_bytes(dataset, rows), captions))
    return made


def sample_rows(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """A selection of these rows: about PER_CLASS in all, with equally many of each domain, but at least one."""
    if dataset.domains is None:
        return spread_of_tiles(rows, PER_CLASS)
    each = max(1, PER_CLASS // len(dataset.domain_names))
    groups = [rows[dataset.domains[rows] == d] for d in range(len(dataset.domain_names))]
    return np.concatenate([spread_of_tiles(group, each) for group in groups])


def spread_of_tiles(rows: np.ndarray, count: int) -> np.ndarray:
    """At most `count` of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)] if len(rows) else rows


def sheet_intro(dataset: Dataset) -> str:
    few = f"The first {MOST_CLASSES} of {dataset.classes} classes. " if dataset.classes > MOST_CLASSES else ""
    if dataset.one_part:
        return f"{few}Images as decoded, evenly spread over each class; their number beside the name."
    return f"{few}Training images as decoded, evenly spread over each class; training + test images beside the name."


def domain_table(dataset: Dataset, groups: TargetGroups) -> CountTable | None:
    if dataset.domains is None:
        return None
    counts = np.zeros((len(dataset.domain_names), len(groups.names)), np.int64)
    np.add.at(counts, (dataset.domains, groups.of), 1)
    train = np.bincount(dataset.domains[: dataset.train_rows], minlength=len(counts))
    right = tuple(f"{own:,} + {all_ - own:,}" for own, all_ in zip(train, counts.sum(axis=1), strict=True))
    right = tuple(f"{own:,}" for own in train) if dataset.one_part else right
    return CountTable(dataset.domain_names, groups.names, counts, right)


def partition_table(dataset: Dataset, groups: TargetGroups, parted: Partition) -> CountTable:
    """Training samples of each client and group; on the right its numbers to train, validate and test."""
    clients = parted.clients[:MOST_CLIENTS]
    counts = np.stack([groups.counts(own.train) for own in clients])
    right = tuple(f"{len(own.train):,} + {len(own.val):,} + {len(own.test):,}" for own in clients)
    rows = tuple(client_name(dataset, number, own.train) for number, own in enumerate(clients))
    return CountTable(rows, groups.names, counts, right)


def client_name(dataset: Dataset, number: int, rows: np.ndarray) -> str:
    """A client's number, and its domain if all its images are of one."""
    if dataset.domains is None or not len(rows) or len(held := np.unique(dataset.domains[rows])) > 1:
        return f"client {number}"
    return f"client {number}, {dataset.domain_names[held[0]]}"


def partition_intro(dataset: Dataset, groups: TargetGroups, config: Config, parted: Partition) -> str:
    seed = config.seeds[0] if config.partition.seed is None else config.partition.seed
    few = f" The first {MOST_CLIENTS} of {len(parted.clients)} clients." if len(parted.clients) > MOST_CLIENTS else ""
    if parted.newcomers:
        few += f" {len(parted.newcomers)} more clients join after the last round."
    return (
        f"Training {noun(dataset)} per client and {groups.by}: {config.partition.name}, "
        f"seed {seed}.{few} Beside each client its {noun(dataset)} to train, validate and test."
    )


def data_facts(dataset: Dataset, config: Config, parted: Partition | None) -> list[tuple[str, str]]:
    assert dataset.folder is not None
    published = published_of(dataset.name)
    source = (published.constants if published else MEASURED).source
    if config.data.mean or config.data.std:
        source = "data.mean, data.std"
    facts: list[tuple[str, Any]] = [
        ("mean", ", ".join(f"{value:.4f}" for value in dataset.mean)),
        ("deviation", ", ".join(f"{value:.4f}" for value in dataset.std)),
        ("constants from", source),
        ("cache", f"{dataset.folder} ({size(cache.size_on_disk(dataset.folder))})"),
    ]
    if parted:
        keys = {k: v for k, v in config.partition.model_dump().items() if k in config.partition.model_fields_set}
        facts += [(f"partition.{key}", value) for key, value in {"name": config.partition.name, **keys}.items()]
        facts.append(("partition fingerprint", parted.fingerprint()))
    return [(key, str(value)) for key, value in facts]
