"""Checks that float32, in which features and targets are stored, can distinguish the numbers of a column."""

import numpy as np

from fedbench.errors import ConfigError

STEPS = 1000
"""Float32 must distinguish this many values in a column whose numbers it rounds."""

SOME = 2
"""Times STEPS: how many numbers are looked at first."""
NOISE = 8
"""Floats that differ by up to this many of their own steps differ by rounding only."""


def check_resolution(where: str, values: np.ndarray, names: list[str]) -> None:
    """Raises ConfigError for a column of `values` [n, D] that float32 cannot represent. names: of the columns."""
    if not len(values):
        return
    for name, exact in zip(names, values.T, strict=True):
        if is_blurred(exact):
            low, high = number_text(exact.min()), number_text(exact.max())
            raise ConfigError(
                f"{where}: {name} goes from {low} to {high} in steps too small for float32: subtract an offset "
                "beforehand, or scale it"
            )


def number_text(value: np.generic) -> str:
    """Every digit of a number."""
    return str(value) if value.dtype.kind in "iu" else f"{value:.17g}"


def is_blurred(exact: np.ndarray) -> bool:
    """Whether float32 distinguishes too few numbers of a column.

    They span too few of its steps, or most of them collapse to a few values.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        short = exact.astype(np.float32)
        again = short.astype(exact.dtype)  # a comparison of integers with floats would round both
    if not np.isfinite(short).all() or (again == exact).all():
        return False
    low, high = exact.min().item(), exact.max().item()
    step = float(np.spacing(np.float32(max(abs(low), abs(high)))))
    wide = high - low >= STEPS * step
    if wide and len(np.unique(short[: SOME * STEPS])) >= STEPS:  # as most columns: no need to sort them
        return False
    levels = count_levels(exact)
    if levels == 1:
        return False
    left = len(np.unique(short))
    return not wide or (left < STEPS and 2 * left <= levels)


def count_levels(exact: np.ndarray) -> int:
    """The number of distinct values, ignoring differences by rounding."""
    ascending = np.unique(exact)
    gaps = np.diff(ascending)
    if exact.dtype.kind == "f":
        gaps = gaps > NOISE * np.spacing(abs(ascending[1:]))
    return 1 + int(np.count_nonzero(gaps))


def check_channels(where: str, samples: np.ndarray) -> None:
    """Raises ConfigError if float32 cannot represent the numbers of a channel, the first dimension of each sample."""
    channels = samples.shape[1]
    columns = np.moveaxis(samples.reshape(len(samples), channels, -1), 1, 2).reshape(-1, channels)
    called = "feature" if samples.ndim == 2 else "channel"
    check_resolution(where, columns, [f"{called} {number}" for number in range(channels)])
