"""Numbers that float32 would blur are refused, others are not."""

import numpy as np
import pytest

from fedbench.data.reading.resolution import check_resolution
from fedbench.errors import ConfigError

RNG = np.random.default_rng(0)
SECONDS = 1.7e9 + np.arange(60.0)


@pytest.mark.parametrize(
    "column",
    [
        SECONDS,
        SECONDS.astype(np.int64),
        -SECONDS,
        1 + 1e-6 * RNG.normal(size=60),
        np.where(np.arange(60) < 3, 0, SECONDS),
        RNG.normal(size=60) * 1e-50,
        1.7e9 + 200.5 * np.arange(60),
    ],
    ids=["seconds", "whole", "negative", "offset", "with a 0 for unknown", "tiny", "uneven"],
)
def test_a_column_of_close_large_numbers_is_named(column):
    values = np.stack([RNG.normal(size=60), column.astype(np.float64)], 1)
    with pytest.raises(
        ConfigError, match=r"^here: b goes from .* float32: subtract an offset beforehand, or scale it$"
    ):
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
        1.7e9 + 30.0 * np.arange(1_000_000),
        RNG.normal(size=1_000_000),
        np.array([1e300, 1.0]),
        np.array([0.1, 0.2, 0.3]).repeat(20),
        np.array([0.3, 0.1 + 0.2]).repeat(9),
        np.outer([0.1, 0.3, 0.7], 1 + 2.0**-52 * np.arange(3)).reshape(-1),
    ],
    ids=[
        *("normal", "offset", "large", "constant", "subtracted", "exact", "days", "float32", "small", "a year"),
        *("million", "not finite", "few", "rounding", "rounding of several"),
    ],
)
def test_others_are_taken(column):
    check_resolution("here", column[:, None], ["a"])


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_whole_numbers_that_floats_round_are_compared_as_they_are(kind):
    with pytest.raises(ConfigError, match="t goes from 1152921504606846976 to 1152921504606847095 in steps too small"):
        check_resolution("data", np.arange(2**60, 2**60 + 120, dtype=kind)[:, None], ["t"])
    check_resolution("data", (np.arange(120, dtype=kind) * 2**50)[:, None], ["t"])
    check_resolution("data", np.full((120, 1), 2**60 + 1, kind), ["t"])
