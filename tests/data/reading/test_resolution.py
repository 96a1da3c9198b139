"""Numbers that float32 would blur are refused, others are not."""

import numpy as np
import pytest

from fedbench.data.reading.resolution import check_resolution
from fedbench.errors import ConfigError

RNG = np.random.default_rng(0)
SECONDS = 1.7e9 + np.arange(60.0)


@pytest.mark.parametrize("column", [SECONDS, SECONDS.astype(np.int64), -SECONDS, 1 + 1e-6 * RNG.normal(size=60)])
def test_a_column_of_close_large_numbers_is_named(column):
    values = np.stack([RNG.normal(size=60), column.astype(np.float64)], 1)
    with pytest.raises(ConfigError, match=r"^here: b goes from .* so far from 0: subtract an offset beforehand"):
        check_resolution("here", values, ["a", "b"])


@pytest.mark.parametrize(
    "column",
    [
        RNG.normal(size=10_000),
        RNG.normal(1000, 1, 60),
        RNG.uniform(0, 3e9, 60),
        SECONDS * 0 + 1.7e9,
        SECONDS - 1.7e9,
        2.0**24 + 2 * np.arange(60),
        1.7e9 + 86_400.0 * np.arange(60),
        SECONDS.astype(np.float32),
        RNG.normal(size=60) * 1e-30,
    ],
    ids=["normal", "offset", "large", "constant", "subtracted", "exact", "days", "float32", "small"],
)
def test_others_are_taken(column):
    check_resolution("here", column[:, None], ["a"])
