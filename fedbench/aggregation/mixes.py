"""Each client's weights in a mix of all clients' vectors, by solving one programme per client."""

import numpy as np
from threadpoolctl import threadpool_limits

from fedbench.aggregation.programmes import simplex_minimum


@threadpool_limits.wrap(limits=1, user_api="blas")  # eigenvectors depend on the number of threads
def head_mixes(moments: np.ndarray, spreads: np.ndarray, eps: float) -> np.ndarray:
    """FedPAC's weights `[n, n]` of all heads in each client's mix: row i minimises a' P_i a on the simplex.

    moments: h of n clients `[n, C d]`; spreads: V `[n]`. P_i holds the inner products of all h relative to client i's,
    and V on its diagonal. If the programme cannot be solved, the client keeps its own head.
    """
    centred = moments - moments.mean(0)  # keeps distances and reduces rounding
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
    """The weights above eps, scaled to sum 1."""
    kept = np.where(weights > eps, weights, 0.0)
    return kept / kept.sum()
