"""Outcomes: one number per test sample, whose mean is a client's score, and whose spread gives that mean's error.

Of a mean over samples these are the samples' own values. Of other metrics, such as the AUROC, they are the
pseudo-values of the jackknife: n times the score, minus n - 1 times the score without the sample. Without some samples
there is no score, such as without the only positive one; these have NaN.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tasks.targets import Array

BLOCKS = 64
"""Sets of rows that are left out together where a metric has to be computed anew for each of them."""


Values = TypeVar("Values", "Array", "Tensor")


def pseudo_values(whole: float, without: Values) -> Values:
    """Of a score of all n samples, and the scores without each of them `[n]`, an array or a tensor."""
    return len(without) * whole - (len(without) - 1) * without


def block_of(units: "Array") -> "Array":
    """The block `[n]` of rows or groups, by number: the same in all seeds, for all clients and methods."""
    import numpy as np

    mixed = units.astype(np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return (mixed * np.uint64(BLOCKS) >> np.uint64(32)).astype(np.int64)


def by_blocks(score: Callable[["Array"], float], blocks: "Array") -> "Array":
    """Pseudo-values `[n]` of a score; the samples of a block share theirs.

    score: of the samples at these places. blocks: of the samples. If leaving out a block of m samples changes the score
    by d, they deviate from it by d (n - m) / m, so that they are the block's mean if the score is a mean.
    """
    import numpy as np

    count, values = len(blocks), np.full(len(blocks), np.nan)
    whole = score(np.arange(count))
    for block in np.unique(blocks):
        in_block = blocks == block
        if (size := int(in_block.sum())) < count:
            values[in_block] = whole + (whole - score(np.flatnonzero(~in_block))) * (count - size) / size
    return values


def auroc_without(scores: "Array", positive: "Array") -> tuple[float, "Array"]:
    """The area under the ROC curve, and the area without each sample `[n]`; NaN where one class is left.

    From the share of the other class that a sample is ranked rightly against, as in DeLong et al. (1988).
    """
    import numpy as np

    right = np.empty(len(scores))
    for own, sign in ((positive, 1), (~positive, -1)):
        others = np.sort(sign * scores[~own])
        places = [np.searchsorted(others, sign * scores[own], side) for side in ("left", "right")]
        right[own] = (places[0] + places[1]) / 2 / max(1, len(others))
    whole, size = float(right[positive].mean()), np.where(positive, positive.sum(), (~positive).sum())
    return whole, np.where(size > 1, (size * whole - right) / np.maximum(1, size - 1), np.nan)


def average_precision_without(scores: "Array", positive: "Array") -> tuple[float, "Array"]:
    """The average precision, and that without each sample `[n]`; NaN where no positive one is left."""
    import numpy as np

    _, level = np.unique(-scores, return_inverse=True)  # 0 for the highest scores
    hits, all_ = (np.bincount(level, weights=weights) for weights in (positive, np.ones(len(scores))))
    positives, seen = np.cumsum(hits), np.cumsum(all_)  # positive and all samples from this level up
    total = positives[-1]
    above = np.concatenate([[0.0], np.cumsum(hits * positives / seen)])  # summed precision of positive samples

    def from_level_down(lost: int) -> "Array":
        """The summed precision of positive samples from each level down, if one sample more is gone from there."""
        precision = np.divide(positives - lost, seen - 1, out=np.zeros(len(seen)), where=seen > 1)
        return np.cumsum((hits * precision)[::-1])[::-1]

    own_precision = np.divide(positives - 1, seen - 1, out=np.zeros(len(seen)), where=seen > 1)
    rest = np.where(positive, (from_level_down(1) - own_precision)[level], from_level_down(0)[level])
    left = total - positive
    return float(above[-1] / total), np.divide(
        above[level] + rest, left, out=np.full(len(scores), np.nan), where=left > 0
    )


Counts = Callable[["Array", "Array", "Array"], float]
"""A metric of each class's numbers of right predictions, predictions and samples, `[C]` each."""


def of_counts(metric: Counts, true: "Array", predicted: "Array") -> "Array":
    """Pseudo-values `[n]` of a metric of counts, from classes; -1: none."""
    import numpy as np

    classes = int(max(true.max(), predicted.max())) + 1
    right, guesses, samples = (
        np.bincount(values[values >= 0], minlength=classes).astype(float)
        for values in (true[true == predicted], predicted, true)
    )
    pairs, pair_of = np.unique(np.stack([true, predicted]), axis=1, return_inverse=True)
    without = np.empty(pairs.shape[1])
    for number, (one, other) in enumerate(pairs.T):
        fewer = [right.copy(), guesses.copy(), samples.copy()]
        fewer[2][one] -= 1
        if other >= 0:
            fewer[1][other] -= 1
            fewer[0][one] -= one == other
        without[number] = metric(*fewer)
    return pseudo_values(metric(right, guesses, samples), without[pair_of.reshape(-1)])


def mean_recall(right: "Array", guesses: "Array", samples: "Array") -> float:
    """Mean over the classes with samples; NaN without any."""
    occurs = samples > 0
    return float((right[occurs] / samples[occurs]).mean()) if occurs.any() else float("nan")


def mean_f1(right: "Array", guesses: "Array", samples: "Array") -> float:
    """Mean over the classes that occur or are predicted; NaN without any."""
    known = guesses + samples > 0
    return float((2 * right[known] / (guesses + samples)[known]).mean()) if known.any() else float("nan")


def f1_of_ones(right: "Array", guesses: "Array", samples: "Array") -> float:
    """F1 of class 1; NaN if it neither occurs nor is predicted."""
    if len(right) < 2 or not (guesses + samples)[1]:
        return float("nan")
    return float(2 * right[1] / (guesses + samples)[1])
