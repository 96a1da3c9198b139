"""The interface of tasks. Importing it does not import torch, because reports and tables only need the metrics."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from math import isnan, nan
from typing import TYPE_CHECKING

from fedbench.tasks.further import FurtherMetric, further_metric
from fedbench.tasks.metric import Metric

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Score = dict[str, tuple[float, float]]
"""For each metric a sum over samples (or batches), and the weight that turns it into a mean."""


class Task(ABC):
    """metrics: of a score, the primary one first, which tables, reports and choices use. loss_metric: the mean loss.

    classes: whether targets are class numbers, int64 `[b]`, and outputs class scores `[b, C]`. by_label: whether a
    score also has single labels, as `PRIMARY/label=3`. known: optional metrics by name; further: those that are
    recorded.
    """

    name: str
    metrics: tuple[Metric, ...]
    loss_metric: str
    classes: bool = False
    by_label: bool = False
    known: dict[str, FurtherMetric] = {}  # noqa: RUF012
    further: tuple[FurtherMetric, ...] = ()

    @property
    def primary(self) -> Metric:
        return self.metrics[0]

    def with_metrics(self, names: Sequence[str], primary: str | None = None) -> "Task":
        """The task with additional metrics and a primary one. Raises ConfigError."""
        own = [metric.name for metric in self.metrics]
        asked = [*names, *([primary] if primary and primary not in (*own, *names) else [])]
        task = copy(self)
        task.further = tuple(further_metric(name, self.known) for name in asked if name not in own)
        every = (*self.metrics, *(more.metric for more in task.further))
        task.metrics = tuple(sorted(every, key=lambda metric: metric.name != primary))
        return task

    def scored(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """The score, with additional metrics, each computed over all samples."""
        score = self.score(batches, dtype, by_batches)
        if self.further:
            import torch

            outputs, targets = (torch.cat(parts).cpu() for parts in zip(*batches, strict=True))
            given = outputs.float().numpy(), targets.numpy()  # NumPy has no bfloat16
            for more in self.further:
                if not isnan(value := more.value(*given)):
                    score[more.metric.name] = (value * len(targets), len(targets))
        return score

    @abstractmethod
    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Loss of outputs `[b, ...]`; reduction: mean, sum or none, as in torch."""

    @abstractmethod
    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """The score of (outputs, targets), batch by batch. by_batches: accuracy is the mean over batches."""


def mean_of(score: Score, metric: str) -> float:
    """The mean of a metric; NaN if the score lacks it."""
    total, weight = score.get(metric, (nan, 1.0))
    return total / weight if weight else nan
