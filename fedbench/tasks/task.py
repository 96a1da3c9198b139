"""The interface of tasks. Importing it does not import torch, because reports and tables only need the metrics."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from math import isnan, nan
from typing import TYPE_CHECKING

from fedbench.errors import RunError, place_of_code
from fedbench.tasks.further import FurtherMetric, further_metric, refuse_undirected
from fedbench.tasks.metric import Metric
from fedbench.tasks.outcomes import by_blocks
from fedbench.tasks.targets import Targets, check_numbers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array

Score = dict[str, tuple[float, float]]
"""For each metric a sum over samples (or batches), and the weight that turns it into a mean."""


class Task(ABC):
    """What a network learns: how targets are read, the loss of its outputs, and their metrics.

    name: as it is asked for. metrics: of a score, the primary one first, which tables, reports and choices use.
    loss_metric: the mean loss. meaning, outputs_are: what targets and outputs are, in errors. classes: whether targets
    are class numbers, int64 `[b]`, and outputs class scores `[b, C]`. bit_logits: whether outputs are logits of bits,
    which are 1 above 0. by_label: whether a score also has single labels, as `PRIMARY/label=3`. by_position: whether
    samples have a target at each position, some of which may not count. optional_metrics: optional metrics by name;
    further: those that are recorded.
    """

    name: str = ""
    metrics: tuple[Metric, ...] = (Metric("loss", "loss", higher=False),)
    loss_metric: str = "loss"
    meaning: str = "numbers"
    outputs_are: str = "numbers"
    classes: bool = False
    bit_logits: bool = False
    by_label: bool = False
    by_position: bool = False
    optional_metrics: dict[str, FurtherMetric] = {}  # noqa: RUF012
    further: tuple[FurtherMetric, ...] = ()

    @property
    def primary(self) -> Metric:
        return self.metrics[0]

    def with_metrics(self, names: Sequence[str], primary: str | None = None) -> "Task":
        """The task with additional metrics and a primary one. Raises ConfigError."""
        names_before = [metric.name for metric in self.metrics]
        all_names = [*names, *([primary] if primary and primary not in (*names_before, *names) else [])]
        task = copy(self)
        unknown = [name for name in all_names if name not in names_before]
        new = tuple(further_metric(name, self.optional_metrics, not self.by_position) for name in unknown)
        task.further = (*self.further, *new)
        for more in new:
            if more.metric.name == primary:
                refuse_undirected(more)
        every = (*self.metrics, *(more.metric for more in new))
        task.metrics = tuple(sorted(every, key=lambda metric: metric.name != primary))
        return task

    def score_all(
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

    def outcomes_all(
        self,
        batches: Sequence[tuple["Tensor", "Tensor"]],
        dtype: "torch.dtype",
        blocks: "Array",
        by_batches: bool = False,
    ) -> "tuple[dict[str, Array], dict[str, Array]]":
        """Outcomes `[n]` of the samples by metric (`tasks/outcomes.py`), and those that samples of a block share.

        blocks: of the samples `[n]`. The second kind is found for the primary metric alone, by computing it once
        without each block; other metrics without outcomes have none.
        """
        import torch

        outcomes = {}
        if issubclass(self._maker_of("outcomes"), self._maker_of("score")):  # not those of another score
            outcomes = {
                name: own.double().cpu().numpy() for name, own in self.outcomes(batches, dtype, by_batches).items()
            }
        outputs, targets = (torch.cat(parts).cpu() for parts in zip(*batches, strict=True))
        given = outputs.float().numpy(), targets.numpy()
        for more in self.further:
            if more.outcomes and not isnan(more.value(*given)):
                outcomes[more.metric.name] = more.outcomes(*given)
        name = self.primary.name
        if name in outcomes:
            return outcomes, {}

        def score(places: "Array") -> float:
            chosen = torch.from_numpy(places)
            metrics = [more for more in self.further if more.metric.name == name]
            if metrics:
                return metrics[0].value(*(part[places] for part in given))
            return mean_of(self.score([(outputs[chosen], targets[chosen])], dtype, by_batches), name)

        return outcomes, {name: by_blocks(score, blocks)}

    def _maker_of(self, hook: str) -> type:
        """The class that defines a method of the task."""
        return next(kind for kind in type(self).__mro__ if hook in vars(kind))

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        """Outcomes `[n]` of the samples by metric; by default their losses.

        A class that overrides `score` may do so with this too; otherwise the primary metric is computed again without
        some samples at a time.
        """
        import torch

        return {self.loss_metric: torch.cat([self.loss(own.to(dtype), targets, "none") for own, targets in batches])}

    def positive(self, outputs: "Tensor", targets: "Tensor") -> "Tensor | None":
        """Which samples `[b]` are positive, class 1 of two; None for a task with other targets."""
        return None

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        """The targets of all samples: by default numbers `[n, ...]` as they are.

        values: as the data set gives them, numbers or text. names, classes: the data set's names of its classes, and
        their number, if known. Raises TargetError for an invalid row.
        """
        check_numbers(values, self.name)
        return Targets(values)

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        """The legal shapes of a sample's outputs; None: any size; no shapes: any.

        target: the shape of a sample's target. outputs: the number of classes, or of a target's numbers.
        """
        return ()

    def refusal(self, samples: "Array", targets: "Array") -> str | None:
        """Why these samples and targets `[n, ...]` cannot belong to the task, in one line; None: they can."""
        return None

    def undefined(self, metric: str, targets: "Array") -> str:
        """Why no outputs give a metric of these targets `[n, ...]` a value, in few words; empty if some do.

        targets: of one client or more, at least one sample.
        """
        return next((more.undefined(targets) for more in self.further if more.metric.name == metric), "")

    @abstractmethod
    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Loss of outputs `[b, ...]`; reduction: mean, sum or none, as in torch."""

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """The score of (outputs, targets), batch by batch; by default the mean loss of the samples.

        by_batches: accuracy is the mean over batches.
        """
        import torch

        sums, count = [], 0
        for outputs, targets in batches:
            loss = self.loss(outputs.to(dtype), targets, "none")
            if loss.shape != (len(targets),):
                line = f"{self.name}: loss with reduction none must return one number for every sample, shape [batch]"
                raise RunError(f"{line}; it returned {list(loss.shape)}", place_of_code(type(self).loss))
            sums.append(loss.sum(dtype=torch.float64))
            count += len(targets)
        return {self.loss_metric: (float(torch.stack(sums).sum()), count)}


def weigh_batches(values: "Tensor", batches: Sequence[tuple["Tensor", "Tensor"]], by_batches: bool) -> "Tensor":
    """Samples' values `[n]`, weighted so that their mean is the mean over batches, if that is asked for."""
    import torch

    if not by_batches:
        return values
    sizes = torch.tensor([len(targets) for _, targets in batches], device=values.device)
    return values * torch.repeat_interleave(len(values) / len(batches) / sizes.double(), sizes)


def reduce_losses(losses: "Tensor", reduction: str) -> "Tensor":
    """Losses `[b]` of samples, or their mean or sum."""
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def reduce_counted(losses: "Tensor", counted: "Tensor", reduction: str) -> "Tensor":
    """Losses of positions `[b, ...]`, 0 where none counts: their mean over all that count, 0 if none does.

    none: of each sample, the mean over its positions; sum: the sum of these. counted: bool `[b, ...]`.
    """
    counts = counted.flatten(1).sum(1)
    if reduction == "mean":
        return losses.sum() / counts.sum().clamp(min=1)
    return reduce_losses(losses.flatten(1).sum(1) / counts.clamp(min=1), reduction)


def check_score(task: Task, score: object) -> None:
    """Raises RunError if what a task of the user's returns is no score."""
    place = place_of_code(type(task).score)
    if not isinstance(score, Mapping) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in score.values()):
        raise RunError(f"{task.name}: score must return a dict of pairs (sum, weight) by metric", place)
    known = [metric.name for metric in task.metrics]
    if unknown := [name for name in score if name.partition("/")[0] not in known]:
        raise RunError(
            f"{task.name}: score returns {unknown[0]}, which is none of its metrics {', '.join(known)}", place
        )
    if task.loss_metric not in score:
        raise RunError(f"{task.name}: score returns no {task.loss_metric}, its loss", place)


def pooled_value(task: Task, outputs: "Array", targets: "Array") -> float | None:
    """The primary metric over the samples of all clients together; None if it is unknown.

    outputs: float32 `[n, ...]`, targets `[n, ...]`, of all clients in ascending order, so that the bits are the same
    for any number of hosts. Raises RunError if a metric of the user's fails.
    """
    import torch

    if metric := next((more for more in task.further if more.metric.name == task.primary.name), None):
        value = metric.value(outputs, targets)
    else:
        whole = torch.from_numpy(outputs), torch.from_numpy(targets)
        value = mean_of(task.score([whole], torch.float32), task.primary.name)
    return None if isnan(value) else value


def mean_of(score: Score, metric: str) -> float:
    """The mean of a metric; NaN if the score lacks it."""
    total, weight = score.get(metric, (nan, 1.0))
    return total / weight if weight else nan
