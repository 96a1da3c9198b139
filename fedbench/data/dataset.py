"""A memory-mapped data set. Importing it does not import torch, which help and lists do without."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench import tasks
from fedbench.data import cache, sources
from fedbench.data.cache import OnProgress
from fedbench.data.decoding import prepare
from fedbench.data.description import Decision
from fedbench.data.fields import Fields
from fedbench.data.raw_columns import RawColumn, feature_names, void_places
from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.config import Config, DataConfig


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and targets of one data set, train part first, then test part.

    samples: [rows, ...], memory-mapped. kind: image (uint8 or float32 [rows, channels, height, width]), feature
    (float32), token (int64) or fields (several arrays, packed into rows). fields: the structure of batches that are not
    (samples, targets). targets: [rows, ...], class numbers (int64) or numbers (float32), depending on the task.
    domains: int64 [rows] or None. groups, order: int64 [rows] or None, what `partition.test_by` and
    `partition.order_by` name: the group and the place in time of every row; extent: how far a sample reaches, in units
    of the order. Rows 0 .. train_rows-1 are the source's train part, of which the last val_rows are its own validation
    part; data of one part are in the order in which they lie. mean, std: per channel (the dimension of a sample that
    channels names, first or last) of pixels in [0, 1] or of features; one for all numbers if they have no channels;
    empty if samples are not normalised. classes: their number, 0 if targets are not classes. class_names: of the
    classes, or of the labels of a multilabel task. class_labels: the source's label of each class, if it is not the
    class number. scores: a network's scores for each position, 0 if they are the classes or the numbers of a target.
    decisions: how it was read. warnings: remarks for readers of results; scaling: remarks
    on mean and std. folder: its place in the cache; a Dataset pickles as this folder, so all processes of a machine map
    one copy. table: the columns of a table, of which rows are made. equal: the rows that equal another, and the first
    row that each equals, int64 [k, 2], or None. file_count: the number of files read. official: whether it is known to
    be what its makers publish under its name.
    """

    name: str
    samples: np.ndarray
    targets: np.ndarray
    domains: np.ndarray | None
    task: str
    classes: int
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    train_rows: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    kind: str = "image"
    val_rows: int = 0
    class_labels: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ()
    fields: Fields | None = None
    scores: int = 0
    groups: np.ndarray | None = None
    order: np.ndarray | None = None
    table: tuple[RawColumn, ...] = ()
    file_count: int = 0
    extent: int = 0
    decisions: tuple[Decision, ...] = ()
    channels: str = "first"
    equal: np.ndarray | None = None
    official: bool = False

    @classmethod
    def of_run(cls, config: "Config", progress: OnProgress | None = None) -> "Dataset":
        """Loads the data set of a run, with the columns that its partition reads. Raises ConfigError."""
        return cls.load(config.data, progress, Beside.of(config.partition))

    @classmethod
    def load(cls, config: "DataConfig", progress: OnProgress | None = None, beside: Beside = NOTHING) -> "Dataset":
        """Loads the configured data set; the first call on a machine decodes it. Raises ConfigError.

        beside: columns that are read as groups and order, and not as features.
        """
        dataset = cls.open(prepare(sources.find_source(config, progress, beside), progress))
        if config.task not in ("auto", dataset.task):
            raise ConfigError(f"data.task = {config.task}: data {config.name} is for {dataset.task}; leave it out")
        if config.content and config.content != dataset.content:
            raise ConfigError(
                f"data {config.name}: not the data of the requested run (data.content = "
                f"{config.content}, and they are {dataset.content} now); bring them back, or leave data.content out"
            )
        return dataset.with_constants(config.mean, config.std)

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """Opens the prepared data set in a folder of the cache. Raises ConfigError."""
        return cls(**cache.read_prepared(folder), folder=folder)

    def with_constants(self, mean: Sequence[float], std: Sequence[float]) -> "Dataset":
        """The data set with other constants, one for all channels or one each; empty ones stay. Raises ConfigError."""
        channels, constants = len(self.mean), {"mean": self.mean, "std": self.std}
        for key, values in (("mean", mean), ("std", std)):
            if values and not channels:
                what = "samples of several arrays" if self.kind == "fields" else "integers"
                raise ConfigError(f"data.{key} = {[*values]}: {self.name} has {what}, which are not normalised")
            if len(values) not in (0, 1, channels):
                raise ConfigError(
                    f"data.{key} = {[*values]}: {self.name} has {channels} channels; one value, or as many"
                )
            if values:
                constants[key] = tuple(values) if len(values) > 1 else tuple(values) * channels
        if constants == {"mean": self.mean, "std": self.std}:
            return self
        return replace(self, **constants, scaling=())  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.folder is None:
            return super().__reduce__()  # type: ignore[return-value]
        return reopen_dataset, (self.folder, self.mean, self.std)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample; for images (channels, height, width)."""
        return self.samples.shape[1:]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers of rows, if they have any."""
        return feature_names(self.table)

    @property
    def void(self) -> tuple[int, ...]:
        """The places in rows of numbers that may be missing, NaN, which `imputation.py` fills."""
        return void_places(self.table)

    @property
    def is_known(self) -> bool:
        """Whether it is one of the sets that fedbench reads by name."""
        return self.name in sources.SETS.built_in

    @property
    def holds_images(self) -> bool:
        """Whether samples are images that can be shown and augmented."""
        return self.kind == "image" and self.samples.ndim == 4

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines to print before training."""
        return (*self.warnings, *self.scaling)

    @property
    def outputs(self) -> int:
        """The number of outputs of a network: one score per class, or the numbers of a target."""
        return self.scores or self.classes or int(np.prod(self.targets.shape[1:]))

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of classes or labels: their texts in the source, or their numbers."""
        return self.class_names or self.class_labels or tuple(map(str, range(self.outputs)))

    @property
    def meaning(self) -> str:
        """A description of its targets."""
        return tasks.load(self.task).meaning

    @property
    def content(self) -> str:
        """Twelve hexadecimal digits that identify samples, targets, domains, their meaning and parts, and decisions.

        A decision counts by its key and value, so that one that is given is the same as one that is certain. Those on
        the constants do not, as the constants themselves do not.
        """
        assert self.folder is not None
        parts = (self.train_rows, self.val_rows, self.samples.shape, self.samples.dtype.str, self.targets.dtype.str)
        names = (self.kind, self.task, self.classes, self.class_names, self.class_labels, self.domain_names)
        later = (*filter(None, [self.scores]), *([self.fields.as_json()] if self.fields else []))
        decided = sorted((own.key, repr(own.value)) for own in self.decisions if own.key not in ("", "data.channels"))
        later = (*later, *([decided] if decided else []))
        read = (cache.digest_of(self.folder), parts, names, *later)
        return sha256(repr(read).encode()).hexdigest()[:12]

    @property
    def one_part(self) -> bool:
        """Whether it has no separate train and test parts."""
        return self.train_rows in (0, len(self.targets))

    @property
    def labels(self) -> np.ndarray:
        """Class numbers, int64 [rows]. Raises ConfigError if targets are not classes."""
        if not self.classes:
            raise ConfigError(
                f"data {self.name}: its targets are {self.meaning}, and what was asked for goes by classes; take the "
                "partition iid, domain, natural or file, and public.balance = none"
            )
        return self.targets

    @property
    def test_rows(self) -> int:
        return len(self.targets) - self.train_rows

    @property
    def unit(self) -> int:
        """The divisor of samples before normalisation: 255 for pixels, else 1."""
        return 255 if self.samples.dtype == np.uint8 else 1

    def inputs(self) -> dict[str, Any]:
        """The input normalisation as JSON, for using a model without this data set.

        A model's input is (sample / unit - mean) / std, with mean and std along the first dimension of a sample (the
        last if channels says so), or the sample itself if both are empty (tokens). fields: the structure of batches, if
        they are not (samples, targets), and the columns of every array in packed samples. shape: of
        a sample; classes: the names of the outputs.
        """
        classes = self.class_names or tuple(map(str, range(self.classes)))
        constants = {"unit": self.unit, "mean": [*self.mean], "std": [*self.std]}
        fields: dict[str, Any] = {"fields": self.fields.as_json()} if self.fields else {}
        fields |= {} if self.channels == "first" else {"channels": self.channels}
        return {"shape": [*self.shape], **constants, "classes": [*classes], **fields}


def reopen_dataset(folder: Path, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """Opens a data set that was pickled as its folder."""
    return Dataset.open(folder).with_constants(mean, std)
