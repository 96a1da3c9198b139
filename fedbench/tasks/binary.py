"""Binary classification: one logit against 0 or 1."""

from collections.abc import Iterable, Sequence
from math import nan
from typing import TYPE_CHECKING

from fedbench.errors import ConfigError
from fedbench.tasks.further import FurtherMetric, by_name, one_class
from fedbench.tasks.metric import Metric
from fedbench.tasks.outcomes import auroc_without, average_precision_without, f1_of_ones, of_counts, pseudo_values
from fedbench.tasks.targets import Targets
from fedbench.tasks.task import Score, Task, weigh_batches

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array


def binary_auroc(logits: "Array", labels: "Array") -> float:
    """Area under the ROC curve; unknown with one class only, and for outputs that are not finite."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    known = len(np.unique(labels)) == 2 and np.isfinite(logits).all()
    return float(roc_auc_score(labels, logits.reshape(-1))) if known else nan


def no_positive(labels: "Array") -> str:
    """Why an average precision is undefined for these labels."""
    return "" if labels.any() else "no positive sample"


def f1(logits: "Array", labels: "Array") -> float:
    """F1 of class 1; unknown if it neither occurs nor is predicted."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, logits.reshape(-1) > 0, zero_division=nan))


def average_precision(logits: "Array", labels: "Array") -> float:
    """Average precision of class 1; unknown if it does not occur, and for outputs that are not finite."""
    import numpy as np
    from sklearn.metrics import average_precision_score

    known = labels.any() and np.isfinite(logits).all()
    return float(average_precision_score(labels, logits.reshape(-1))) if known else nan


def _auroc_outcomes(logits: "Array", labels: "Array") -> "Array":
    return pseudo_values(*auroc_without(logits.reshape(-1), labels > 0.5))


def _f1_outcomes(logits: "Array", labels: "Array") -> "Array":
    return of_counts(f1_of_ones, labels.astype(int), (logits.reshape(-1) > 0).astype(int))


def _precision_outcomes(logits: "Array", labels: "Array") -> "Array":
    return pseudo_values(*average_precision_without(logits.reshape(-1), labels > 0.5))


class Binary(Task):
    """Targets `[b]` of 0 and 1, whole numbers or floats as they were given; outputs logits `[b]` or `[b, 1]`.

    Class 1 is predicted if the logit is above 0.
    """

    name = "binary"
    bit_logits = True
    metrics = (
        Metric("accuracy", "accuracy", share=True),
        Metric("loss", "binary cross-entropy", higher=False, least=0.0),
    )
    meaning = "0 or 1 for one logit"
    outputs_are = "logits"
    optional_metrics = by_name(
        FurtherMetric(
            Metric("auroc", "AUROC", share=True, over_samples=False, pooled=True),
            binary_auroc,
            outcomes=_auroc_outcomes,
            undefined=one_class,
        ),
        FurtherMetric(Metric("f1", "F1", share=True, over_samples=False, pooled=True), f1, outcomes=_f1_outcomes),
        FurtherMetric(
            Metric("average_precision", "average precision", share=True, over_samples=False, pooled=True),
            average_precision,
            outcomes=_precision_outcomes,
            undefined=no_positive,
        ),
    )

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        """Two classes in any form, numbered as for a classification; floats stay floats."""
        from fedbench.tasks.class_numbers import read_classes

        targets = read_classes(values, names, classes)
        if targets.classes != 2:
            raise ConfigError(f"data.task = binary: two classes are needed, the targets have {targets.classes}")
        numbers = targets.values.astype(float) if values.dtype.kind == "f" and values.ndim == 1 else targets.values
        remarks = targets.remarks
        if called := targets.names or targets.labels:
            remarks += (f"{called[1]} is 1, the class of which F1 and average precision are",)
        return Targets(numbers, names=targets.names, labels=targets.labels, remarks=remarks)

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        return [(1,), ()]

    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Binary cross-entropy."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(
            outputs.view_as(targets), targets.to(outputs.dtype), reduction=reduction
        )

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """Correct samples (or the sum of the batches' shares), and losses summed in float64.

        Outputs that are NaN are never correct.
        """
        import torch

        hits, losses, sizes = [], [], []
        for outputs, targets in batches:
            logits = outputs.to(dtype).view_as(targets)
            hits.append((((logits > 0) == (targets > 0.5)) & ~logits.isnan()).sum())
            losses.append(self.loss(logits, targets, "none").sum(dtype=torch.float64))
            sizes.append(len(targets))
        correct, count = torch.stack(hits).tolist(), sum(sizes)
        shares = [hit / size for hit, size in zip(correct, sizes, strict=True)]
        accuracy = (sum(shares), len(shares)) if by_batches else (sum(correct), count)
        return {"accuracy": accuracy, "loss": (float(torch.stack(losses).sum()), count)}

    def positive(self, outputs: "Tensor", targets: "Tensor") -> "Tensor | None":
        return targets.reshape(-1) > 0.5

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        import torch

        outputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        logits = outputs.to(dtype).view_as(targets)
        right = ((logits > 0) == (targets > 0.5)) & ~logits.isnan()
        return {
            "accuracy": weigh_batches(right.double(), batches, by_batches),
            "loss": self.loss(logits, targets, "none"),
        }


TASK = Binary()
