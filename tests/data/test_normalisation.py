"""Constants that are measured while samples pass by are those of all of them at once."""

import numpy as np
import pytest

from fedbench.data.normalisation import moments_of
from fedbench.errors import ConfigError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "samples",
    [
        RNG.integers(0, 256, (50, 3, 4, 5)).astype(np.uint8),
        RNG.normal(3, 2, (50, 6)).astype(np.float32),
        RNG.normal(-1, 5, (50, 2, 7)).astype(np.float32),
    ],
)
def test_they_are_those_of_numpy_whatever_the_blocks(samples):
    unit = 255 if samples.dtype == np.uint8 else 1
    values = np.moveaxis(samples, 1, 0).reshape(samples.shape[1], -1).astype(np.float64) / unit
    for size in (1, 17, 50):
        constants = moments_of(samples)
        for start in range(0, 50, size):
            constants.add(samples[start : start + size])
        constants.add(samples[:0])
        mean, std = constants.mean_and_std()
        np.testing.assert_allclose(mean, values.mean(1), rtol=1e-12)
        np.testing.assert_allclose(std, values.std(1), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_constant_channel_keeps_its_scale(dtype):
    constants = moments_of(samples := np.full((4, 2, 3, 3), 51, dtype))
    constants.add(samples)
    assert constants.mean_and_std()[1] == [1.0, 1.0]


def test_whole_numbers_are_not_normalised():
    constants = moments_of(samples := RNG.integers(0, 100, (5, 8)))
    constants.add(samples)
    assert constants.mean_and_std() == ([], [])


def remarks_on(*columns: np.ndarray, names: tuple[str, ...] = ()) -> list[str]:
    samples = np.stack(columns, axis=1).astype(np.float32)
    constants = moments_of(samples, categories=True, columns=names)
    constants.add(samples)
    return list(constants.remarks())


def test_columns_of_zeros_and_ones_are_no_codes_to_speak_of():
    numbers, bits, codes = RNG.normal(size=60), RNG.integers(0, 2, 60), RNG.integers(0, 4, 60)
    assert remarks_on(numbers, bits) == []
    assert remarks_on(bits, 1 - bits) == []
    assert remarks_on(numbers, np.arange(60)) == []  # no value repeats
    (line,) = remarks_on(numbers, bits, codes, names=("age", "job=cook", "floor"))
    assert line.startswith("columns floor look like category codes and are not standardised, the others, unless they")
    (line,) = remarks_on(bits, codes, names=("job=cook", "floor"))
    assert line.startswith("columns floor hold whole numbers and are standardised")
    (line,) = remarks_on(codes, codes)
    assert line.startswith("every column holds whole numbers and is standardised")


def test_columns_that_are_said_to_be_numbers_are_no_codes():
    numbers, codes = RNG.normal(size=60), RNG.integers(0, 4, 60)
    samples = np.stack([numbers, codes, codes], axis=1).astype(np.float32)
    found = moments_of(samples, categories=True, columns=("a", "floor", "room"), numbers=("floor",))
    found.add(samples)
    assert found.mean_and_std()[0][1:] == [pytest.approx(codes.mean()), 0]
    assert "columns room look like category codes and are not standardised" in next(iter(found.remarks()))


WINDOWS = (RNG.normal(size=(400, 32, 3)) * [1.0, 40.0, 0.02] + [9.8, 0.0, 36.6]).astype(np.float32)
PICTURES = RNG.random((400, 12, 12)) * np.hanning(12)[:, None] * np.hanning(12)


@pytest.mark.parametrize(
    ("samples", "channels", "count"),
    [
        (WINDOWS, "last", 3),
        (WINDOWS.transpose(0, 2, 1), "first", 3),
        ((WINDOWS - WINDOWS.mean((0, 1))) / WINDOWS.std((0, 1)), "single", 1),
        (PICTURES, "single", 1),
        (WINDOWS[:, :, None], "last", 3),
    ],
)
def test_the_channel_is_the_dimension_along_which_scales_differ(samples, channels, count):
    constants = moments_of(samples.astype(np.float32), channels=None)
    for part in (samples[:300], samples[:0], samples[300:]):
        constants.add(part.astype(np.float32))
    (decision,) = constants.decide("data mine")
    assert (constants.channels, decision.value, decision.how) == (channels, channels, "certain")
    mean, std = constants.mean_and_std()
    assert len(mean) == count
    if count == 3:
        np.testing.assert_allclose(mean, WINDOWS.astype(float).mean((0, 1)), rtol=1e-6)
        np.testing.assert_allclose(std, WINDOWS.astype(float).std((0, 1)), rtol=1e-6)


def test_the_channel_is_asked_for_if_scales_differ_along_both():
    samples = ((PICTURES - 0.13) / 0.3).astype(np.float32)
    constants = moments_of(samples, channels=None)
    constants.add(samples)
    with pytest.raises(ConfigError) as caught:
        constants.decide("data mine")
    line = str(caught.value)
    assert line.startswith("data mine: samples [12, 12], whose numbers differ in scale along the first and the last ")
    for key in ("first", "last", "single"):
        assert f"(--data.channels {key})" in line
        known = moments_of(samples, channels=key)
        known.add(samples)
        known.decide("data mine")
        assert len(known.mean_and_std()[0]) == {"single": 1}.get(key, 12)
