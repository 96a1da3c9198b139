"""Describes a data set as it was read, and the clients that it was dealt to."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedbench.config import Config, DataConfig
from fedbench.data.dataset import Dataset
from fedbench.data.description import (
    TASK,
    About,
    ClientSizes,
    Decision,
    Description,
    Parts,
    Samples,
    TargetForm,
    first_names,
    value_text,
)
from fedbench.data.partitions import Partition, partition, resolved_options
from fedbench.data.partitions.rows import PARTITION_PARTS
from fedbench.user_code.given_data import given_data

TRAINING_KEYS = {"name", "root", "content", "val", "augment", "crop_padding", "rotate_degrees"}
"""Keys `data.*` that do not say how the data are read."""
TASK_KEY = "data.task"
ABOUT: dict[str, About] = {
    TASK_KEY: "targets",
    "data.label": "targets",
    "data.classes": "targets",
    "data.user": "clients",
    "data.domains": "clients",
}
"""What keys decide on; others of `data` on samples, those of `partition` on parts."""
SAID = {
    TASK_KEY: f"{TASK} {{}}",
    "data.label": "{} is the target",
    "data.user": "{} is the user of a sample",
    "partition.test_by": "samples of one {} stay on one side",
    "partition.order_by": "{} is the order of samples",
}
"""What keys say, in words; others `key set to value`."""
MOST_COUNTED = 1000
"""Maximum number of values at each position that are counted."""


def describe(data: Any) -> Description:
    """What is read from data: a name, objects, or anything else that `Config(data=...)` takes; or a Config.

    The clients of a Config that names a partition are those that it deals for the first seed. Raises ConfigError, also
    if it is open how the data are to be read.

    >>> describe("digits").parts.train
    1438
    """
    config = data if isinstance(data, Config) else Config(data=data)
    dataset = Dataset.of_run(config)
    is_partitioned = "partition" in config.model_fields_set
    return description_of(dataset, config, partition(dataset, config, config.seeds[0]) if is_partitioned else None)


def description_of(dataset: Dataset, config: Config, dealt: Partition | None = None) -> Description:
    """The description of a data set that was read by this configuration. dealt: to clients, if it was."""
    return Description(
        dataset.name,
        dataset.is_known,
        parts_of(dataset, config, dealt),
        samples_of(dataset),
        targets_of(dataset),
        clients_of(dataset) if dealt is None else dealt_clients(dataset, config, dealt),
        dataset.file_count,
        tuple(decisions_of(dataset, config)),
        (*dataset.remarks, *(dealt.warnings if dealt else ())),
    )


def parts_of(dataset: Dataset, config: Config, dealt: Partition | None) -> Parts:
    train = dataset.train_rows - dataset.val_rows
    parts = Parts(train, dataset.val_rows, dataset.test_rows, dataset.one_part)
    if dealt is None:
        return parts
    whole = (dealt.clients, dealt.newcomers)
    train, val, test = (sum(len(part.parts[use][0]) for part in whole) for use in PARTITION_PARTS)
    return replace(parts, dealt=(train, val, test), drawn=resolved_options(dataset, config).test)


def samples_of(dataset: Dataset) -> Samples:
    kind, fields = dataset.kind, str(dataset.fields) if dataset.kind == "fields" else ""
    mean, std = (tuple(map(float, values)) for values in (dataset.mean, dataset.std))
    known = (dataset.columns, fields, dataset.unit, mean, std, dataset.channels)
    return Samples(kind, dataset.shape, str(dataset.samples.dtype), *known)


def targets_of(dataset: Dataset) -> TargetForm:
    """Counts classes and labels; of numbers, the range."""
    task, values, outputs = dataset.task, np.asarray(dataset.targets), dataset.outputs
    if task == "multilabel":
        return TargetForm(task, outputs, "label", dataset.output_names, tuple(values.sum(axis=0).astype(int).tolist()))
    if task == "binary":
        positive = int((values > 0.5).sum())
        return TargetForm(task, 2, "class", dataset.class_names or ("0", "1"), (len(values) - positive, positive))
    if not dataset.classes and not dataset.scores:
        return TargetForm(task, outputs, "number", low=float(values.min()), high=float(values.max()))
    noun = "class" if dataset.classes else "class at each position" if task == "segmentation" else "score"
    if outputs > MOST_COUNTED or values.dtype.kind != "i":
        return TargetForm(task, outputs, noun)
    counted = (values >= 0) & (values < outputs)
    counts = np.bincount(values[counted], minlength=outputs).tolist()
    void = zip(*(column.tolist() for column in np.unique(values[~counted], return_counts=True)), strict=True)
    return TargetForm(task, outputs, noun, dataset.output_names, tuple(counts), void=tuple(void))


def clients_of(dataset: Dataset) -> ClientSizes:
    """The clients that the data name."""
    if dataset.domains is None:
        return ClientSizes("none in the data; a partition deals the samples to clients")
    counts = np.bincount(dataset.domains, minlength=len(dataset.domain_names))
    return sizes_of(f"in the data ({first_names(dataset.domain_names)}), for --partition natural", counts)


def dealt_clients(dataset: Dataset, config: Config, dealt: Partition) -> ClientSizes:
    """The clients of a partition, newcomers too."""
    name, names = config.partition.name, dataset.domain_names
    source = f"by partition {name}"
    if name == "natural":
        source = f"{'' if len(dealt.clients) == len(names) else f'of {len(names)} '}in the data ({first_names(names)})"
    elif names and not dataset.is_known and "domain" not in name:
        source += f", not the {len(names)} in the data ({first_names(names)}), which --partition natural takes"
    if dealt.newcomers:
        source += f", {len(dealt.newcomers)} of them join after the last round"
    sizes = [sum(group.parts[use][1] for use in group.parts) for group in (dealt.clients, dealt.newcomers)]
    return sizes_of(source, np.concatenate(sizes))


def sizes_of(source: str, counts: np.ndarray) -> ClientSizes:
    smallest, largest, median = int(counts.min()), int(counts.max()), int(np.median(counts))
    return ClientSizes(source, len(counts), smallest, median, largest)


def decisions_of(dataset: Dataset, config: Config) -> Iterator[Decision]:
    """Those of the readers, then what keys say of which these are silent, and the task of a set of the user's own."""
    keys, decided = given_keys(config), {own.key for own in dataset.decisions}
    for decision in dataset.decisions:
        yield replace(decision, how="given") if decision.key in keys else decision
    if line := unused_loading(dataset, config):
        yield Decision("parts", line)
    others = keys if dataset.is_known else {TASK_KEY: dataset.task, **keys}
    for key, value in sorted(others.items()):
        if key not in decided:
            about = "parts" if key.startswith("partition.") else ABOUT.get(key, "samples")
            text = SAID.get(key, f"{key.rpartition('.')[2]} set to {{}}").format(value_text(value))
            yield Decision(about, text, "given" if key in keys else "certain", key, value)


def unused_loading(dataset: Dataset, config: Config) -> str:
    """What the training loader of a data module sets of which fedbench does something else; empty if nothing."""
    data = given_data(dataset.name)
    if data is None or data.loading is None:
        return ""
    (size, random), used = data.loading, config.train.batch_size
    unused = [f"batch_size {size}"] * (size != used) + ["shuffle=False"] * (not random)
    instead = [f"train.batch_size {used} is"] * (size != used) + ["training draws a random order"] * (not random)
    verb = "are" if len(unused) > 1 else "is"
    return f"its loader's {' and '.join(unused)} {verb} not used: {' and '.join(instead)}" if unused else ""


def given_keys(config: Config) -> dict[str, Any]:
    """The keys of a configuration that say how data are read and are not at their default."""
    usual = DataConfig().model_dump(mode="json")
    data = config.data.model_dump(mode="json")
    keys = {f"data.{key}": value for key, value in data.items() if key not in TRAINING_KEYS}
    keys = {key: value for key, value in keys.items() if value not in (None, usual.get(key.removeprefix("data.")))}
    columns = {"partition.test_by": config.partition.test_by, "partition.order_by": config.partition.order_by}
    return keys | {key: value for key, value in columns.items() if value}


def written_keys(description: Description, config: Config) -> dict[str, Any]:
    """The keys of a configuration that reads the same data in the same way."""
    root = {"data.root": str(config.data.root)} if config.data.root else {}
    return {"data.name": config.data.name, **root, **description.keys}
