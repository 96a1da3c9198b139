"""Classification: class scores against class numbers."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedbench.tasks.further import OF_CLASSES
from fedbench.tasks.metric import Metric
from fedbench.tasks.targets import Targets
from fedbench.tasks.task import Score, Task, weigh_batches

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array


class Classification(Task):
    name = "classification"
    metrics = (Metric("accuracy", "accuracy", share=True), Metric("loss", "cross-entropy", higher=False, least=0.0))
    meaning = "classes"
    outputs_are = "class scores"
    classes = True
    optional_metrics = OF_CLASSES

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        from fedbench.tasks.class_numbers import read_classes

        return read_classes(values, names, classes)

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        return [(outputs,)]

    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Cross-entropy."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, targets, reduction=reduction)

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """Correct samples (or the sum of the batches' shares), and cross-entropies summed in float64.

        Outputs that are NaN are never correct; otherwise the first of them would count as the largest.
        """
        import torch

        hits, losses, sizes = [], [], []
        for outputs, targets in batches:
            outputs = outputs.to(dtype)
            loss = self.loss(outputs, targets, "none")
            hits.append(((outputs.argmax(1) == targets) & ~loss.isnan()).sum())
            losses.append(loss.sum(dtype=torch.float64))
            sizes.append(len(targets))
        correct, count = torch.stack(hits).tolist(), sum(sizes)
        shares = [hit / size for hit, size in zip(correct, sizes, strict=True)]
        accuracy = (sum(shares), len(shares)) if by_batches else (sum(correct), count)
        return {"accuracy": accuracy, "loss": (float(torch.stack(losses).sum()), count)}

    def positive(self, outputs: "Tensor", targets: "Tensor") -> "Tensor | None":
        return targets == 1 if outputs.shape[1] == 2 else None

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        import torch

        outputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        losses = self.loss(outputs.to(dtype), targets, "none")
        right = (outputs.to(dtype).argmax(1) == targets) & ~losses.isnan()
        return {"accuracy": weigh_batches(right.double(), batches, by_batches), "loss": losses}


TASK = Classification()
