"""Regression."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedbench.tasks.metric import Metric
from fedbench.tasks.outcomes import pseudo_values
from fedbench.tasks.targets import Targets, check_numbers
from fedbench.tasks.task import Score, Task, reduce_losses

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array


class Regression(Task):
    """r2: 1 - (squared errors) / (squared deviations of the targets from their mean); unknown for constant targets."""

    name = "regression"
    metrics = (
        Metric("mse", "mean squared error", higher=False, least=0.0),
        Metric("mae", "mean absolute error", higher=False, least=0.0),
        Metric("r2", "R²", over_samples=False, pooled=True, most=1.0),
    )
    loss_metric = "mse"

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        check_numbers(values, self.name)
        return Targets(values.astype(float))

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        return [(outputs,)] if outputs > 1 else [(1,), ()]

    def undefined(self, metric: str, targets: "Array") -> str:
        return "equal targets" if metric == "r2" and (targets == targets[:1]).all() else ""

    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Squared error, mean over the numbers of a target."""
        return reduce_losses((outputs - targets.view_as(outputs)).square().reshape(len(outputs), -1).mean(1), reduction)

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """Sums over samples in float64. The weight of r2 is the number of samples, as for the others."""
        import torch

        outputs, targets = (_rows(torch.cat(parts)) for parts in zip(*batches, strict=True))
        errors, count = outputs - targets, len(targets)
        spread = float((targets - targets.mean(0)).square().sum())
        score: Score = {
            "mse": (float(errors.square().mean(1).sum()), count),
            "mae": (float(errors.abs().mean(1).sum()), count),
        }
        return score | ({"r2": ((1 - float(errors.square().sum()) / spread) * count, count)} if spread else {})

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        import torch

        outputs, targets = (_rows(torch.cat(parts)) for parts in zip(*batches, strict=True))
        errors, away, count = outputs - targets, (targets - targets.mean(0)).square().sum(1), len(targets)
        squares, spread = errors.square().sum(1), away.sum()
        outcomes = {"mse": errors.square().mean(1), "mae": errors.abs().mean(1)}
        if not spread or count < 2:
            return outcomes
        left = spread - away * count / (count - 1)  # squared deviations of the other targets from their own mean
        known = left > 1e-12 * spread
        without = torch.where(known, 1 - (squares.sum() - squares) / left, torch.nan)
        return outcomes | {"r2": pseudo_values(float(1 - squares.sum() / spread), without)}


def _rows(values: "Tensor") -> "Tensor":
    """`[n, k]`, float64."""
    return values.double().reshape(len(values), -1)


TASK = Regression()
