"""Mean and standard deviation per channel, measured while samples are read, and which dimension the channel is."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from fedbench.data.description import Decision, open_decision
from fedbench.tasks.class_numbers import NAMES_SHOWN

Channels = Literal["first", "last", "single"]
"""The dimension of a sample along which the constants go; single: one constant for all numbers."""
DIFFERENT = 0.1
"""Constants that differ from each other by less, in units of the deviation, are the same, as they are for noise."""
NOISE = 4
"""The same in standard errors."""
CODES = 1000
"""Integers below this may be category codes; larger ones are amounts."""


class Statistics:
    """Accumulates samples [b, C, ...] of one kind; by itself of what is not normalised, such as tokens.

    channels: the dimension along which the constants go.
    """

    channels: Channels = "first"

    def add(self, samples: np.ndarray) -> None:
        pass

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        """Per channel; empty if samples are not normalised."""
        return [], []

    def remarks(self) -> Iterable[str]:
        """Remarks for the reader."""
        return ()

    def decide(self, where: str) -> list[Decision]:
        """What was decided on the channels, after all samples. Raises ConfigError if that is open."""
        return []


def moments_of(
    samples: np.ndarray,
    categories: bool = False,
    columns: Sequence[str] = (),
    numbers: Sequence[str] = (),
    channels: Channels | None = "first",
) -> Statistics:
    """The accumulator for these samples: pixels for uint8, features for floats, none for integers (tokens).

    categories: whether columns of rows may hold category codes. columns: their names, if they have any. numbers: the
    names of those that hold none. channels: None if it is unknown which dimension they are.
    """
    if samples.dtype == np.uint8:
        return PixelMoments()
    if not np.issubdtype(samples.dtype, np.floating):
        return Statistics()
    if samples.ndim == 2:
        return RowMoments(samples.shape[1], columns, numbers) if categories else FeatureMoments()
    return FeatureMoments() if channels == "first" else ChannelMoments(samples.shape[1:], channels)


class PixelMoments(Statistics):
    """Statistics of pixels in [0, 1]; the deviation of a constant channel counts as 1."""

    def __init__(self) -> None:
        self.histogram = np.zeros((0, 256), np.int64)  # [channels, 256]

    def add(self, samples: np.ndarray) -> None:
        counts = [np.bincount(samples[:, c].ravel(), minlength=256) for c in range(samples.shape[1])]
        self.histogram = self.histogram + np.stack(counts) if len(self.histogram) else np.stack(counts)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        found = []
        for counts in self.histogram.tolist():  # of Python, which are exact, so that a constant channel is seen as one
            n, total = sum(counts), sum(v * k for v, k in enumerate(counts))
            spread = n * sum(v * v * k for v, k in enumerate(counts)) - total**2
            found.append((total / (255 * n), spread**0.5 / (255 * n) or 1.0))
        means, stds = zip(*found, strict=True)
        return list(means), list(stds)


class FeatureMoments(Statistics):
    """Statistics of the features that are not NaN in float64; the deviation of a constant feature counts as 1."""

    def __init__(self) -> None:
        self.count, self.mean = np.zeros(1, np.int64), np.zeros(1)
        self.squares = np.zeros(1)  # of the distances from the mean

    def add(self, samples: np.ndarray) -> None:
        if not len(samples):
            return
        values = np.moveaxis(samples, 1, 0).reshape(samples.shape[1], -1).astype(np.float64)  # [C, b * ...]
        void = np.isnan(values)
        filled: Any = ~void if void.any() else True  # the order of summation, and so the last bit, depend on a mask
        count = values.shape[1] - void.sum(1)
        mean = values.sum(1, where=filled) / count.clip(1)
        gap, total = mean - self.mean, self.count + count
        squares = np.square(values - mean[:, None]).sum(1, where=filled)
        self.squares = self.squares + squares + gap**2 * self.count * count / total.clip(1)
        self.mean, self.count = self.mean + gap * count / total.clip(1), total

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        return self.mean.tolist(), [value or 1.0 for value in np.sqrt(self.squares / self.count.clip(1)).tolist()]


class ChannelMoments(Statistics):
    """Features of several dimensions, of which the first, the last or neither may be the channel.

    asked: which one it is, if that is known. It is certain if the constants differ along one of the two dimensions
    alone, as those of sensors do and those of places in time do not. There is none if they differ along neither, and
    if all numbers are from 0 to 1, as those of pictures are.
    """

    def __init__(self, shape: tuple[int, ...], asked: Channels | None) -> None:
        self.asked, self.shape, self.pixels = asked, shape, True
        self.known: dict[Channels, FeatureMoments] = {name: FeatureMoments() for name in ("first", "last", "single")}

    def add(self, samples: np.ndarray) -> None:
        if not len(samples):
            return
        self.known["first"].add(samples)
        self.known["last"].add(np.moveaxis(samples, -1, 1))
        self.known["single"].add(samples.reshape(len(samples), 1, -1))
        self.pixels &= bool(samples.min() >= 0 and samples.max() <= 1)

    def decide(self, where: str) -> list[Decision]:
        different: list[Channels] = [name for name in ("first", "last") if self._differ(name)]
        if self.asked is None and len(different) > 1 and not self.pixels:
            raise open_decision(
                where,
                f"samples {[*self.shape]}, whose numbers differ in scale along the first and the last dimension",
                {
                    "--data.channels first": f"{self.shape[0]} channels",
                    "--data.channels last": f"{self.shape[-1]} channels",
                    "--data.channels single": "one scale, as in a picture",
                },
            )
        self.channels = self.asked or ("single" if self.pixels or not different else different[0])
        what = {"single": "one mean and deviation for all numbers"}
        said = what.get(self.channels) or f"a mean and deviation for each place along the {self.channels} dimension"
        said = f"samples {[*self.shape]} have {said}"
        return [] if self.asked else [Decision("samples", said, "certain", "data.channels", self.channels)]

    def _differ(self, name: Channels) -> bool:
        """Whether the constants along a dimension differ by more than noise."""
        moments, whole = self.known[name], self.known["single"]
        (mean, std), (centre, scale) = map(np.array, moments.mean_and_std()), map(np.array, whole.mean_and_std())
        least = np.maximum(DIFFERENT, NOISE / np.sqrt(moments.count))
        return bool((abs(mean - centre) > least * scale).any() or (abs(np.log(std / scale)) > least).any())

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        return self.known[self.channels].mean_and_std()


class RowMoments(FeatureMoments):
    """Features of rows [b, C], of which some columns may hold category codes, which are not standardised.

    Codes are small integers from 0 or 1 that use most of their range and repeat, in a row with other columns of any
    numbers.
    """

    def __init__(self, columns: int, names: Sequence[str] = (), numbers: Sequence[str] = ()) -> None:
        super().__init__()
        self.names = tuple(names) or tuple(map(str, range(columns)))
        self.free = ~np.isin(self.names, numbers)
        self.whole, self.small = np.ones(columns, bool), np.ones(columns, bool)
        self.occurs = np.zeros((columns, CODES), bool)

    def add(self, samples: np.ndarray) -> None:
        super().add(samples)
        if not len(samples):
            return
        void = np.isnan(samples)
        self.whole &= (void | (samples == np.floor(samples))).all(axis=0)
        self.small &= self.whole & (void | ((samples >= 0) & (samples < CODES))).all(axis=0)
        rows, columns = np.nonzero(self.small & ~void)
        self.occurs[columns, samples[rows, columns].astype(np.int64)] = True

    @property
    def codes(self) -> np.ndarray:
        """The columns of categories, ascending."""
        different = self.occurs.sum(axis=1)
        first, last = self.occurs.argmax(axis=1), CODES - 1 - self.occurs[:, ::-1].argmax(axis=1)
        dense = (first <= 1) & (different > 1) & (2 * different >= last - first + 1) & (different < self.count)
        return np.flatnonzero(self.small & dense & self.free) if not self.whole.all() else np.zeros(0, np.int64)

    @property
    def bits(self) -> np.ndarray:
        """The columns of 0 and 1 alone, such as those of encoded texts, bool."""
        return self.small & ~self.occurs[:, 2:].any(axis=1)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        mean, std = super().mean_and_std()
        for column in self.codes.tolist():
            mean[column], std[column] = 0.0, 1.0
        return mean, std

    def remarks(self) -> Iterable[str]:
        """Remarks on whole numbers, except on columns of 0 and 1 alone."""
        bits = self.bits
        codes = np.setdiff1d(self.codes, np.flatnonzero(bits))
        whole = np.flatnonzero(self.whole & (np.sqrt(self.squares) > 0) & ~bits)
        if len(codes):
            amounts = np.setdiff1d(whole, codes)
            others = "the others, unless they are 0 and 1 alone," if bits.any() else "the others"
            others = f"columns {self._list_columns(amounts)} of other whole numbers" if len(amounts) else others
            yield (
                f"columns {self._list_columns(codes)} look like category codes and are not standardised, {others} are "
                "standardised; data.mean and data.std, a value per column, change that"
            )
        elif self.whole.all() and len(whole):
            some = f"columns {self._list_columns(whole)} hold whole numbers and are standardised"
            every = "every column holds whole numbers and is standardised"
            yield f"{some if bits.any() else every}; --data.mean 0 --data.std 1 if they are codes"

    def _list_columns(self, columns: np.ndarray) -> str:
        more = ", ..." if len(columns) > NAMES_SHOWN else ""
        return ", ".join(self.names[column] for column in columns[:NAMES_SHOWN]) + more
