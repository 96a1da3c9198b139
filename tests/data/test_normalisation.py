"""Constants that are measured while samples pass by are those of all of them at once."""

import numpy as np
import pytest

from fedbench.data.normalisation import Statistics, moments_of
from tests.data.loading import refused

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


WINDOWS = (RNG.normal(size=(800, 32, 3)) * [1.0, 40.0, 0.02] + [9.8, 0.0, 36.6]).astype(np.float32)
STANDARDISED = (WINDOWS - WINDOWS.mean((0, 1))) / WINDOWS.std((0, 1))
SHARES = (RNG.random((400, 128, 9)) * np.linspace(0.2, 1, 9)).astype(np.float32)
PICTURES = (RNG.random((400, 28, 28)) * np.hanning(30)[1:-1, None] * np.hanning(30)[1:-1]).astype(np.float32)


def measured(samples: np.ndarray, channels: str | None = None) -> Statistics:
    constants = moments_of(samples, channels=channels)
    for part in (samples[:300], samples[:0], samples[300:]):
        constants.add(part)
    return constants


@pytest.mark.parametrize(
    ("samples", "channels", "axes", "reason"),
    [
        (WINDOWS, "last", (0, 1), "they differ along this one alone, the shorter one"),
        (WINDOWS.transpose(0, 2, 1), "first", (0, 2), "they differ along this one alone, the shorter one"),
        (WINDOWS[:, :, None], "last", (0, 1, 2), "they differ along this one alone, the shorter one"),
        (STANDARDISED, "single", None, "they do not differ along a dimension"),
        (PICTURES, "single", None, "they are from 0 to 1 in dimensions of one length, as in pictures"),
        (PICTURES[..., None], "single", None, "they are from 0 to 1 in dimensions of one length, as in pictures"),
        (SHARES[:, :, :1], "single", None, "they are from 0 to 1 in dimensions of one length, as in pictures"),
    ],
)
def test_channels_are_certain_if_no_others_make_sense(samples, channels, axes, reason):
    constants = measured(samples)
    (decision,) = constants.decide("data mine")
    assert (constants.channels, decision.value, decision.how, decision.key) == (
        channels,
        channels,
        "certain",
        "data.channels",
    )
    assert decision.said.endswith(f": {reason}")
    mean, std = constants.mean_and_std()
    np.testing.assert_allclose(mean, np.atleast_1d(samples.mean(axes, np.float64)), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(std, np.atleast_1d(samples.std(axes, np.float64)), rtol=1e-6)


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(PICTURES - 0.5, id="both dimensions differ"),
        pytest.param(SHARES, id="sensors from 0 to 1, last"),
        pytest.param(SHARES.transpose(0, 2, 1), id="sensors from 0 to 1, first"),
        pytest.param(STANDARDISED + np.float32([0, 0.05, 0]), id="a small difference that is none of chance"),
        pytest.param(STANDARDISED[:20], id="too few samples to tell"),
        pytest.param(STANDARDISED + np.sin(np.arange(32))[:, None], id="the longer dimension differs"),
        pytest.param(WINDOWS[:, :3], id="no dimension is the shorter one"),
        pytest.param(
            STANDARDISED[:60] + RNG.normal(size=(60, 1, 3)), id="a difference that few samples make by chance"
        ),
    ],
)
def test_channels_are_asked_for_if_others_give_other_numbers(samples):
    samples = samples.astype(np.float32)
    line = refused(measured(samples).decide, "data mine")
    assert line.startswith(f"data mine: samples {[*samples.shape[1:]]}, whose mean or deviation depends on the place")
    for key, axes in {"first": (0, 2), "last": (0, 1), "single": None}.items():
        assert f"(--data.channels {key})" in line
        given = measured(samples, key)
        assert given.decide("data mine") == []
        mean, std = given.mean_and_std()
        np.testing.assert_allclose(mean, np.atleast_1d(samples.mean(axes, np.float64)), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(std, np.atleast_1d(samples.std(axes, np.float64)), rtol=1e-5)
