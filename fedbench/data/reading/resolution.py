"""Whether float32, in which features and targets are kept, can still tell the numbers of a column apart."""

import numpy as np

from fedbench.errors import ConfigError

STEPS = 1000
"""So many values float32 must tell apart between the smallest and the largest number of a column."""


def check_resolution(where: str, values: np.ndarray, names: list[str]) -> None:
    """Raises ConfigError for a column of `values` [n, D] that float32 would blur. names: of the columns."""
    if values.dtype.itemsize < 8 or not len(values):
        return
    exact = values.astype(np.float64)
    low, high = exact.min(axis=0), exact.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        short = exact.astype(np.float32)
        step = np.spacing(np.maximum(abs(low), abs(high)).astype(np.float32)).astype(np.float64)
        blurred = (short != exact).any(axis=0) & (high > low) & (high - low < STEPS * step)
    if blurred.any():
        column = int(np.flatnonzero(blurred)[0])
        raise ConfigError(
            f"{where}: {names[column]} goes from {low[column]:.17g} to {high[column]:.17g} in steps that float32 does "
            "not have so far from 0: subtract an offset beforehand"
        )
