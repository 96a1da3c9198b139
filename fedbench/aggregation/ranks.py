"""The largest numbers, and numbers above a quantile, by exact order statistics."""

from fractions import Fraction
from math import ceil, floor
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.module.masks import mask_indices


def largest(scores: Tensor, count: int, among: Tensor | None = None) -> Tensor:
    """Marks exactly `count` largest scores, bool `[n]`; ties go to the lower index. among: of these, bool `[n]`."""
    if among is not None:
        index = mask_indices(among)
        return torch.zeros_like(among).scatter_(0, index, largest(scores.index_select(0, index), count))
    if count <= 0 or count >= len(scores):
        return torch.full(scores.shape, count > 0, device=scores.device)
    if scores.device.type != "cpu":
        mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        mask[scores.sort(descending=True, stable=True).indices[:count]] = True
        return mask
    values = scores.numpy()
    # NumPy's partition is vectorised: 1 ms for a million floats, where topk takes 15 and a sort 100. Half of this time
    # is saved by comparing integers: positive floats have the order of their bits, and all others are below them.
    bits = values.view(f"i{values.itemsize}")
    least = np.partition(bits, -count)[-count]
    if least > 0:
        values = bits
    else:
        least = np.partition(values, -count)[-count]
    chosen = values >= least
    surplus = np.count_nonzero(chosen) - count
    if surplus:
        chosen[np.flatnonzero(values == least)[-surplus:]] = False
    return torch.from_numpy(chosen)


def floored_share(share: float, size: int) -> int:
    """floor(share * size) in decimal arithmetic: 0.29 of 100 is 29, although the product of floats is less."""
    return floor(Fraction(str(share)) * size)


def min_max(values: Tensor) -> Tensor:
    """Scales values `[n]` to [0, 1] by their minimum and maximum; all 0 if these are equal."""
    least, most = values.aminmax()
    return (values - least).div_(most - least) if most > least else torch.zeros_like(values)


def kth_smallest(values: Tensor, k: int) -> Tensor:
    """The k-th smallest value `[]`; k counts from 1."""
    if values.device.type != "cpu":
        return values.kthvalue(k).values
    return torch.from_numpy(np.partition(values.numpy(), k - 1)[k - 1 : k])[0]


def quantile_rank(n: int, q: float, rule: Literal["inf", "linear"] = "inf") -> int:
    """The rank of the q-quantile of n values, from 1; q counts as its printed decimal.

    rule: inf is the definition, the least value that at least a share q of all does not exceed, 0 (minus infinity) for
    q = 0; linear is the rank at which a linearly interpolated quantile starts.
    """
    share = Fraction(str(q))
    return ceil(share * n) if rule == "inf" else floor(share * (n - 1)) + 1


def above_quantile(values: Tensor, q: float, rule: Literal["inf", "linear"] = "inf") -> Tensor:
    """Marks values strictly above the q-quantile, one of the values, bool `[n]`; all for rank 0 (`quantile_rank`)."""
    k = quantile_rank(len(values), q, rule)
    return values > kth_smallest(values, k) if k else torch.ones_like(values, dtype=torch.bool)
