"""Multilabel classification: a score for each label against 0 or 1."""

from collections.abc import Iterable, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING

from fedbench.errors import ConfigError
from fedbench.tasks.metric import Metric
from fedbench.tasks.outcomes import average_precision_without, pseudo_values
from fedbench.tasks.targets import Targets, of_each
from fedbench.tasks.task import Score, Task, reduce_losses

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array


class Multilabel(Task):
    """Targets float [b, L] of 0 and 1, outputs logits [b, L]; a label is predicted if its logit is above 0.

    Means over labels (macro) omit labels with unknown values: F1 if a label neither occurs nor is predicted, average
    precision if it does not occur. A metric is unknown if it is unknown for every label.
    """

    name = "multilabel"
    bit_logits = True
    metrics = (
        Metric("f1_macro", "macro F1", share=True, over_samples=False, pooled=True),
        Metric("average_precision", "macro average precision", share=True, over_samples=False, pooled=True),
        Metric("accuracy", "accuracy over labels", share=True),
        Metric("loss", "binary cross-entropy", higher=False, least=0.0),
    )
    meaning = "multiple labels"
    by_label = True

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        from fedbench.tasks.class_numbers import require_bits

        if values.ndim == 1:
            raise ConfigError(
                "data.task = multilabel: every sample has one target; pass a row with a 0 or 1 for each label"
            )
        require_bits(values, self.name)
        return Targets(values.astype(float), names=of_each(names, values.shape[1]))

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        return [(outputs,)]

    def undefined(self, metric: str, targets: "Array") -> str:
        return "no label occurs" if metric == "average_precision" and not targets.any() else ""

    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Binary cross-entropy, mean over the labels of a sample."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        losses = binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(1)
        return reduce_losses(losses, reduction)

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """Means over samples, or over labels, each with the number of samples as its weight.

        F1 of label k alone is `f1_macro/label=k`. Outputs that are NaN predict nothing.
        """
        import torch
        from sklearn.metrics import average_precision_score

        outputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        least = torch.finfo(torch.float64).min
        logits, true, count = outputs.double().nan_to_num(least), targets > 0.5, len(targets)
        predicted, occurs = logits > 0, true.any(0)
        f1 = 2 * (predicted & true).sum(0).double() / (predicted.sum(0) + true.sum(0))
        precision = (
            average_precision_score(*(values[:, occurs].cpu().numpy() for values in (true, logits)), average=None)
            if occurs.any()
            else []
        )
        right = (predicted == true) & ~outputs.isnan()
        score: Score = {
            "f1_macro": _mean(f1, count),
            "average_precision": _mean(torch.as_tensor(precision), count),
            "accuracy": (float(right.double().mean(1).sum()), count),
            "loss": (float(self.loss(outputs.double(), targets.double(), "none").sum()), count),
        }
        score |= {f"f1_macro/label={label}": (value * count, count) for label, value in enumerate(f1.tolist())}
        return {name: pair for name, pair in score.items() if name == "loss" or not isnan(pair[0])}

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        import numpy as np
        import torch

        outputs, targets = (torch.cat(parts).cpu() for parts in zip(*batches, strict=True))
        logits, true = outputs.double().nan_to_num(torch.finfo(torch.float64).min), targets > 0.5
        predicted = logits > 0
        both = predicted.double() + true.double()
        right = (predicted & true).double()
        without = 2 * (right.sum(0) - right) / (both.sum(0) - both)  # [n, L], NaN where a label is gone
        precision = [
            average_precision_without(logits[:, label].numpy(), true[:, label].numpy())
            for label in true.any(0).nonzero().flatten().tolist()
        ]
        outcomes = {
            "f1_macro": pseudo_values(float((2 * right.sum(0) / both.sum(0)).nanmean()), without.nanmean(1)),
            "accuracy": ((predicted == true) & ~outputs.isnan()).double().mean(1),
            "loss": self.loss(outputs.double(), targets.double(), "none"),
        }
        if precision:
            areas = torch.tensor([whole for whole, _ in precision])
            without = torch.tensor(np.array([without_each for _, without_each in precision])).nanmean(0)
            outcomes["average_precision"] = pseudo_values(float(areas.double().mean()), without)
        return outcomes


def _mean(values: "Tensor", weight: int) -> tuple[float, float]:
    """The mean over labels with known values, as a sum with that weight; NaN if there are none."""
    known = values[~values.isnan()]
    return (float(known.mean()) * weight if len(known) else nan, weight)


TASK = Multilabel()
