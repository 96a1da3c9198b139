"""A data set in memory-mapped form. Importing it costs no torch, because help and lists need what stands around it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.data import cache, sources
from fedbench.data.cache import OnProgress
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.config import DataConfig


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of one data set with what is to be learnt of them; train part first, then test part.

    samples: [rows, ...], memory-mapped. kind: what they are: image (uint8 or float32 [rows, channels, height, width]),
    feature (float32) or token (int64). targets: [rows, ...], class numbers (int64) or numbers (float32); the task says
    which. domains: int64 [rows] or None. Rows 0 .. train_rows-1 are the source's train part, of which the last val_rows
    are its own validation part. mean, std: per channel, which is the first dimension of a sample, of pixels in [0, 1]
    or of numbers as they are; empty for what is not normalised. classes: how many there are, 0 where targets are no
    classes. class_names: of the classes, or of the labels of a multilabel task. class_labels: of each class its label
    as the source has it, where that is not its number. warnings: what readers of results should know; scaling: what
    they should know of mean and std. folder: where it lies in the cache; a Dataset pickles as that folder, so all
    processes of a machine map one copy.
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

    @classmethod
    def load(cls, config: "DataConfig", progress: OnProgress | None = None) -> "Dataset":
        """The data set that a configuration names, decoded at the first call on this machine. Raises ConfigError."""
        dataset = cls.open(cache.prepare(sources.find_source(config, progress), progress))
        if config.task not in ("auto", dataset.task):
            raise ConfigError(f"data.task = {config.task}: data {config.name} is for {dataset.task}; leave it out")
        if config.content and config.content != dataset.content:
            raise ConfigError(
                f"data {config.name}: other data than those of the run that is asked for (data.content = "
                f"{config.content}, and they are {dataset.content} now); bring them back, or leave data.content out"
            )
        return dataset.normalised(config.mean, config.std)

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """The prepared data set in a folder of the cache. Raises ConfigError."""
        return cls(**cache.read_prepared(folder), folder=folder)

    def normalised(self, mean: Sequence[float], std: Sequence[float]) -> "Dataset":
        """With other constants, one for all channels or one each; those that are empty stay. Raises ConfigError."""
        channels, found = len(self.mean), {"mean": self.mean, "std": self.std}
        for key, values in (("mean", mean), ("std", std)):
            if values and not channels:
                raise ConfigError(f"data.{key} = {[*values]}: {self.name} holds whole numbers, which stay as they are")
            if len(values) not in (0, 1, channels):
                raise ConfigError(
                    f"data.{key} = {[*values]}: {self.name} has {channels} channels; one value, or as many"
                )
            if values:
                found[key] = tuple(values) if len(values) > 1 else tuple(values) * channels
        if found == {"mean": self.mean, "std": self.std}:
            return self
        return replace(self, **found, scaling=())  # type: ignore[arg-type]

    def __reduce__(self) -> tuple:
        if self.folder is None:
            return super().__reduce__()  # type: ignore[return-value]
        return reopen_dataset, (self.folder, self.mean, self.std)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of every sample; of an image (channels, height, width)."""
        return self.samples.shape[1:]

    @property
    def holds_images(self) -> bool:
        """Whether samples are pictures, which can be looked at and augmented."""
        return self.kind == "image" and self.samples.ndim == 4

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said before anything is trained on it."""
        return (*self.warnings, *self.scaling)

    @property
    def outputs(self) -> int:
        """What a network makes of a sample: a score for each class, or the numbers of a target."""
        return self.classes or int(np.prod(self.targets.shape[1:]))

    @property
    def meaning(self) -> str:
        """What its targets are, in words."""
        if self.classes:
            return "classes"
        return "several labels at once" if self.task == "multilabel" else "numbers"

    @property
    def content(self) -> str:
        """Samples, targets and domains that were read, what they are and of which part, as a hash of twelve digits."""
        assert self.folder is not None
        parts = (self.train_rows, self.val_rows, self.samples.shape, self.samples.dtype.str, self.targets.dtype.str)
        names = (self.kind, self.task, self.classes, self.class_names, self.class_labels, self.domain_names)
        read = (cache.digest_of(self.folder), parts, names)
        return sha256(repr(read).encode()).hexdigest()[:12]

    @property
    def one_part(self) -> bool:
        """Whether it is not split into a train and a test part."""
        return self.train_rows in (0, len(self.targets))

    @property
    def labels(self) -> np.ndarray:
        """Class numbers, int64 [rows]. Raises ConfigError where targets are no classes."""
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
        """What a sample is divided by before it is normalised: 255 for pixels, else 1."""
        return 255 if self.samples.dtype == np.uint8 else 1

    def inputs(self) -> dict[str, Any]:
        """What a model is given, for whoever uses it without this data set, as JSON has it.

        A model gets (sample / unit - mean) / std, mean and std along the first dimension of a sample, or the sample as
        it is where both are empty (tokens). shape: of a sample; classes: what outputs stand for, if these are classes.
        """
        classes = self.class_names or tuple(map(str, range(self.classes)))
        constants = {"unit": self.unit, "mean": [*self.mean], "std": [*self.std]}
        return {"shape": [*self.shape], **constants, "classes": [*classes]}


def reopen_dataset(folder: Path, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
    """A data set that travelled as its folder."""
    return Dataset.open(folder).normalised(mean, std)
