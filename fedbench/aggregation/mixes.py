"""Weights of all clients' vectors in a mix for each client, by a programme for each."""

import numpy as np
from threadpoolctl import threadpool_limits

from fedbench.aggregation.programmes import simplex_minimum


@threadpool_limits.wrap(limits=1, user_api="blas")  # eigenvectors differ with the number of threads
def head_mixes(moments: np.ndarray, spreads: np.ndarray, eps: float) -> np.ndarray:
    """FedPAC's weights `[n, n]` of all heads in each client's mix: row i minimises a' P_i a on the simplex.

    moments: h of n clients `[n, C d]`; spreads: V `[n]`. P_i holds the inner products of the distances of all h to that
    of client i, and V on its diagonal. Where the programme cannot be solved a client keeps its own head.
    """
    centred = moments - moments.mean(0)  # distances stay, rounding shrinks
    inner = centred @ centred.T
    mixes = np.eye(len(moments))
    for i, row in enumerate(mixes):
        far = inner - inner[i]
        try:
            row[:] = without_small(simplex_minimum(far - far[:, i : i + 1] + np.diag(spreads)), eps)
        except (np.linalg.LinAlgError, RuntimeError, ValueError):
            continue
    return mixes


def without_small(weights: np.ndarray, eps: float) -> np.ndarray:
    """Weights of more than eps, summing to 1 again."""
    kept = np.where(weights > eps, weights, 0.0)
    return kept / kept.sum()
