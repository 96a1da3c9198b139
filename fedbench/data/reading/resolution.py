"""Whether float32, in which features and targets are kept, can still tell the numbers of a column apart."""

import numpy as np

from fedbench.errors import ConfigError

STEPS = 1000
"""So many values float32 must be able to tell apart in a column whose numbers it rounds."""

NOISE = 8
"""So many of its own steps apart, floats differ by rounding."""


def check_resolution(where: str, values: np.ndarray, names: list[str]) -> None:
    """Raises ConfigError for a column of `values` [n, D] that float32 would blur. names: of the columns."""
    if not len(values):
        return
    for name, exact in zip(names, values.T, strict=True):
        if is_blurred(exact):
            raise ConfigError(
                f"{where}: {name} goes from {exact.min():.17g} to {exact.max():.17g} in steps that float32 does not "
                "have there: subtract an offset beforehand, or scale it"
            )


def is_blurred(exact: np.ndarray) -> bool:
    """Whether float32 tells too few numbers of a column apart.

    These span so few of its steps, or most of them become a few.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        short = exact.astype(np.float32)
    if not np.isfinite(short).all() or (short == exact).all():
        return False
    found = count_levels(exact)
    if found == 1:
        return False
    low, high = float(exact.min()), float(exact.max())
    step = float(np.spacing(np.float32(max(abs(low), abs(high)))))
    left = len(np.unique(short))
    return high - low < STEPS * step or (left < STEPS and 2 * left <= found)


def count_levels(exact: np.ndarray) -> int:
    """How many numbers there are, where floats that differ by rounding alone count as one."""
    ascending = np.unique(exact)
    gaps = np.diff(ascending)
    if exact.dtype.kind == "f":
        gaps = gaps > NOISE * np.spacing(abs(ascending[1:]))
    return 1 + int(np.count_nonzero(gaps))
