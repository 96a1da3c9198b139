"""Semantic segmentation: scores of all classes at each pixel, against its class."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError, open_decision
from fedbench.tasks.class_numbers import first_of
from fedbench.tasks.metric import Metric
from fedbench.tasks.outcomes import pseudo_values
from fedbench.tasks.targets import TargetError, Targets, of_each
from fedbench.tasks.task import Score, Task, reduce_counted

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array

VOID = 255
"""Besides -1, the target of pixels that do not count, as in published masks; with more than 255 classes it is one."""


class Segmentation(Task):
    """Targets int64 `[b, H, W]`, outputs logits `[b, C, H, W]`. Pixels of -1 or 255 do not count.

    miou: intersection over union of all of a client's pixels, mean over the classes that occur among its targets;
    `miou/label=3` is that of a class.
    """

    name = "segmentation"
    metrics = (
        Metric("miou", "mean IoU", share=True, over_samples=False),
        Metric("pixel_accuracy", "pixel accuracy", share=True),
        Metric("loss", "cross-entropy per pixel", higher=False, least=0.0),
    )
    meaning = "a class at each pixel"
    outputs_are = "logits"
    by_label = by_position = True

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        """classes: their number; by default as many as there are class numbers below 255."""
        if values.ndim != 3 or values.dtype.kind not in "iub":
            what = f"{values.dtype} {list(values.shape[1:])}"
            raise ConfigError(f"data.task = segmentation: targets are whole numbers [H, W], masks; these are {what}")
        values = values.astype("int64")
        check_several(values, classes or len(names))
        count = classes or len(names) or int(values.max(where=values != VOID, initial=0)) + 1
        wrong = ~void_pixels(values, count) & ((values < 0) | (values >= count))
        if wrong.any():
            row = int(wrong.reshape(len(values), -1).any(1).argmax())
            label = values[row][wrong[row]][0]
            raise TargetError(row, f"class {label}: 0 to {count - 1} are classes, -1 and {VOID} do not count")
        return Targets(values, names=of_each(names, count), outputs=count)

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        return [(outputs, *target)]

    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Cross-entropy of the pixels that count (see `reduce_counted`)."""
        void = void_pixels(targets, outputs.shape[1])
        return reduce_counted(_losses(outputs, targets, void), ~void, reduction)

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """Over the pixels that count, whose number is the weight; empty if there are none.

        Losses are summed in float64. Pixels whose outputs are NaN are predicted as no class.
        """
        import torch

        table, loss = None, 0.0
        for outputs, targets in batches:
            outputs, classes = outputs.to(dtype), outputs.shape[1]
            void = void_pixels(targets, classes)
            predicted = outputs.argmax(1).masked_fill(outputs.isnan().any(1), classes)[~void]
            pairs = targets[~void] * (classes + 1) + predicted
            counts = torch.bincount(pairs, minlength=classes * (classes + 1)).view(classes, classes + 1)
            table = counts if table is None else table + counts  # [class, predicted], the last column: none
            loss += float(_losses(outputs, targets, void).sum(dtype=torch.float64))
        if table is None or not (count := int(table.sum())):
            return {}
        held, right = table.sum(1), table[:, :-1].diagonal()
        overlap = right.double() / (held + table[:, :-1].sum(0) - right)
        occurs = held > 0
        score: Score = {
            "miou": (float(overlap[occurs].mean()) * count, count),
            "pixel_accuracy": (int(right.sum()), count),
            "loss": (loss, count),
        }
        of_label = {f"miou/label={label}": overlap[label] for label in occurs.nonzero().flatten().tolist()}
        return score | {name: (float(value) * count, count) for name, value in of_label.items()}

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        """Of every image, by the pixels that are left without its own."""
        import torch

        each, losses = [], []
        for outputs, targets in batches:
            outputs, classes = outputs.to(dtype), outputs.shape[1]
            void = void_pixels(targets, classes)
            predicted = outputs.argmax(1).masked_fill(outputs.isnan().any(1) | void, classes)
            true = targets.masked_fill(void, classes)
            same = true.masked_fill(true != predicted, classes)
            parts = [
                torch.stack([(part == k).flatten(1).sum(1) for k in range(classes)], 1)
                for part in (true, predicted, same)
            ]
            each.append(torch.stack(parts).double())  # [3, b, C]
            losses.append(_losses(outputs, targets, void).flatten(1).double().sum(1))
        pixels, loss = torch.cat(each, 1), torch.cat(losses)
        held, guessed, right = pixels.sum(1, keepdim=True) - pixels  # without each image [n, C]
        whole, counts = pixels.sum(1), pixels[0].sum(1)
        iou = torch.where(held > 0, right / (held + guessed - right), torch.nan).nanmean(1)
        all_iou = torch.where(whole[0] > 0, whole[2] / (whole[0] + whole[1] - whole[2]), torch.nan).nanmean()
        left = counts.sum() - counts
        return {
            "miou": pseudo_values(float(all_iou), iou),
            "pixel_accuracy": pseudo_values(float(whole[2].sum() / counts.sum()), right.sum(1) / left),
            "loss": pseudo_values(float(loss.sum() / counts.sum()), (loss.sum() - loss) / left),
        }


SPARSE = 3
"""How many class numbers there are for each one that occurs, from which on masks are asked about."""


def check_several(values: "Array", declared: int) -> None:
    """Raises ConfigError if pixels that do not count leave one class, or if most class numbers do not occur.

    declared: the number of classes, 0 if unknown; of two or more, 255 is no class and may still hide one.
    """
    import numpy as np

    numbers = np.unique(values).tolist()
    left = [number for number in numbers if number not in (-1, VOID)]
    if not declared and len(left) > 1 and min(left) >= 0 and max(left) + 1 > SPARSE * len(left):
        raise open_decision(
            "data.task = segmentation",
            f"masks of {first_of([*map(str, left)])}",
            {
                "bring masks of class numbers, such as np.searchsorted(grey_levels, mask)": "grey levels of as many "
                "classes",
                f"--data.classes {max(left) + 1}": "class numbers, most of which do not occur",
            },
        )
    if declared == 1 or declared > VOID or (declared and VOID not in numbers):
        return
    if len(left) < 2:
        raise open_decision(
            "data.task = segmentation",
            f"masks of {' and '.join(map(str, numbers))}",
            {
                "bring masks of 0 and 1, such as mask // 255": "two classes",
                f"--data.classes {max([0, *left]) + 1}": f"one class, where -1 and {VOID} do not count",
            },
        )


def void_pixels(targets: Any, classes: int) -> Any:
    """Which pixels of an array or tensor do not count, bool of its shape."""
    return (targets == -1) | (targets == VOID) if classes <= VOID else targets == -1


def _losses(outputs: "Tensor", targets: "Tensor", void: "Tensor") -> "Tensor":
    """Cross-entropy `[b, H, W]`, 0 where nothing counts."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets.masked_fill(void, -100), ignore_index=-100, reduction="none")


TASK = Segmentation()
