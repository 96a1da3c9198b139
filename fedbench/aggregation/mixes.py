"""Each client's weights in a mix of all clients' vectors, by solving one programme per client."""

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

TOLERANCE = 1e-12


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


def simplex_minimum(matrix: np.ndarray) -> np.ndarray:
    """argmin of a' P a over a >= 0, sum(a) = 1, float64 `[n]`; among several, the one of least Euclidean norm.

    matrix: P `[n, n]`, positive semidefinite; eigenvalues below `TOLERANCE` of its largest entry count as 0.
    The ray through the solution solves the non-negative least squares of [P^(1/2); 1'] a = [0; 1]. Raises
    numpy.linalg.LinAlgError, RuntimeError or ValueError on failure.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    scale = np.abs(matrix).max()
    kept = values > TOLERANCE * scale
    rows = np.vstack([(vectors[:, kept] * np.sqrt(values[kept] / (scale or 1))).T, np.ones(len(matrix))])
    mix, _ = nnls(rows, np.append(np.zeros(len(rows) - 1), 1.0))
    mix /= mix.sum()
    _, sizes, directions = np.linalg.svd(rows)
    # [n, directions that change neither sum nor value]; the last row may depend on the others.
    free = directions[np.count_nonzero(sizes > 1e-9) :].T
    if free.size:
        fixed = mix - free @ (free.T @ mix)
        mix = np.maximum(0, fixed + free @ least_distance(free, -fixed - TOLERANCE / 10))
    return mix / mix.sum()


def least_distance(rows: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The shortest x with rows @ x >= bounds, if feasible (Lawson and Hanson 1974, ch. 23)."""
    target = np.append(np.zeros(rows.shape[1]), 1.0)
    matrix = np.vstack([rows.T, bounds])
    residual = matrix @ nnls(matrix, target)[0] - target
    return -residual[:-1] / residual[-1]
