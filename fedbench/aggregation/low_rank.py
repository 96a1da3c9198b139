"""Matrices by their largest singular values."""

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor


@threadpool_limits.wrap(limits=1, user_api="blas")  # singular vectors depend on the number of threads
def low_rank(matrix: Tensor, energy: float) -> tuple[Tensor, int]:
    """A matrix `[p, q]` of the lowest rank K that keeps a share of the energy, and how many numbers it takes.

    energy: the share of the sum of squared singular values, in [0, 1]. K columns of both factors and K values are
    K (p + q + 1) numbers; the matrix itself is returned where it has no more. A matrix of zeros takes none.
    """
    left, values, right = np.linalg.svd(matrix.detach().cpu().double().numpy(), full_matrices=False)
    kept = np.cumsum(values**2)
    if not kept[-1] > 0:
        return matrix, 0
    rank = min(int(np.searchsorted(kept, energy * kept[-1])) + 1, len(values))
    numbers = rank * (sum(matrix.shape) + 1)
    if numbers >= matrix.numel():
        return matrix, matrix.numel()
    return torch.from_numpy((left[:, :rank] * values[:rank]) @ right[:rank]).to(matrix), numbers
