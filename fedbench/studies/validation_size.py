"""Whether validation can choose between the points of a study: how many samples, or positives, it has."""

from collections.abc import Iterator

import numpy as np

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.runtime.resolved import ResolvedRun

ENOUGH_PER_POINT = 10
"""Samples per point, of the rarest class where it decides, below which a study says that validation hardly chooses.

Luck alone lifts the best of 10 points by 1.5 standard errors, up to 0.5 / sqrt(n) each: by some 24 percentage points of
recall with 10 positives, by 8 with 100.
"""
FEW_CLASSES = 2


def doubts_of_validation(run: ResolvedRun, partition: Partition, points: int) -> Iterator[str]:
    """A sentence if the validation samples of all clients are few for so many points."""
    rows = partition.clients.parts["val"][0]
    targets = np.asarray(run.dataset.targets)
    if points < 2 or not len(rows):
        return
    words = plural(len(rows), "validation sample")
    count = len(rows)
    if decides_by_class(run) and targets.ndim == 1:
        train = targets[partition.clients.parts["train"][0]]
        classes, sizes = np.unique(train, return_counts=True)
        rarest = classes[sizes.argmin()]
        count = int((targets[rows] == rarest).sum())
        rare = f"{plural(count, 'sample')} of the rarest class"
        what = plural(count, "positive") if len(classes) == FEW_CLASSES else rare
        words = f"{what} among {words}"
    if count < ENOUGH_PER_POINT * points:
        yield (
            f"{words} of all clients {'chooses' if count == 1 else 'choose'} between {points} candidates, so that the "
            "choice is mostly luck: raise --data.val, or try fewer candidates"
        )


def decides_by_class(run: ResolvedRun) -> bool:
    """Whether the rarest class decides how exact the primary metric is: of two classes, or of a metric by class."""
    by_class = run.task.classes or run.task.name == "binary"
    return by_class and (run.dataset.outputs <= FEW_CLASSES or not run.task.primary.over_samples)


def require_validation(config: Config, study: str = "a grid", instead: str = "") -> None:
    """Raises ConfigError if there is no validation split. instead: an alternative for the message."""
    if not config.data.val:
        raise ConfigError(
            f"data.val = 0: {study} chooses on the validation split; set one, for example --data.val 0.1{instead}"
        )
