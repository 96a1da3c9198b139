"""Mean and standard deviation per channel, measured while samples are read, and which dimension the channel is."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from fedbench.config.words import plural
from fedbench.data.description import Decision
from fedbench.errors import open_decision
from fedbench.tasks.class_numbers import first_of

Channels = Literal["first", "last", "single"]
"""The dimension of a sample along which the constants go; single: one constant for all numbers."""
CONSTANTS: dict[Channels, str] = {
    "first": "a mean and deviation for each place along the first dimension",
    "last": "a mean and deviation for each place along the last dimension",
    "single": "one mean and deviation for all numbers",
}
"""What standardises samples with these channels."""
DIFFERENT = 0.1
"""Constants that differ from each other by less, in units of the deviation, do not differ clearly."""
NOISE = 4
"""Constants that differ by less, in standard errors, may do so by chance."""
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
        moments = []
        for counts in self.histogram.tolist():  # of Python, which are exact, so that a constant channel is seen as one
            n, total = sum(counts), sum(v * k for v, k in enumerate(counts))
            spread = n * sum(v * v * k for v, k in enumerate(counts)) - total**2
            moments.append((total / (255 * n), spread**0.5 / (255 * n) or 1.0))
        means, stds = zip(*moments, strict=True)
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

    given: which one it is, if somebody says it. It is certain that there is none if no reading has other constants,
    and in pictures of one height and width from 0 to 1; and which one it is if the constants differ clearly along the
    shorter of the two alone, as those of sensors do and those of places in time do not. Otherwise it is open.
    """

    def __init__(self, shape: tuple[int, ...], given: Channels | None) -> None:
        self.given, self.shape, self.shares = given, shape, True
        self.known: dict[Channels, FeatureMoments] = {name: FeatureMoments() for name in ("first", "last", "single")}

    def add(self, samples: np.ndarray) -> None:
        if not len(samples):
            return
        self.known["first"].add(samples)
        self.known["last"].add(np.moveaxis(samples, -1, 1))
        self.known["single"].add(samples.reshape(len(samples), 1, -1))
        self.shares &= bool(samples.min() >= 0 and samples.max() <= 1)

    def decide(self, where: str) -> list[Decision]:
        if self.given:
            self.channels = self.given
            return []
        self.channels, reason = self._certain() or self._ask(where)
        text = f"samples {[*self.shape]} have {CONSTANTS[self.channels]}: {reason}"
        return [Decision("samples", text, "certain", "data.channels", self.channels)]

    def _certain(self) -> tuple[Channels, str] | None:
        """The channels, and why no others make sense; None if others do."""
        if self.shares and len({side for side in self.shape if side > 1}) <= 1:
            return "single", "they are from 0 to 1 in dimensions of one length, as in pictures"
        gaps = {name: self._gap(name) for name in self.known}
        if all(gap <= min(DIFFERENT, self._chance(name)) for name, gap in gaps.items()):
            return "single", "they do not differ along a dimension"
        different = [name for name, gap in gaps.items() if gap > max(DIFFERENT, self._chance(name))]
        shorter: Channels = "first" if self.shape[0] < self.shape[-1] else "last"
        samples = float(self.known["single"].count[0]) / np.prod(self.shape)
        clear = gaps[shorter] > NOISE / np.sqrt(samples)  # numbers of one sample go together
        if different == [shorter] and clear and not self.shares and self.shape[0] != self.shape[-1]:
            return shorter, "they differ along this one alone, the shorter one"
        return None

    def _ask(self, where: str) -> NoReturn:
        raise open_decision(
            where,
            f"samples {[*self.shape]}, whose mean or deviation depends on the place along a dimension",
            {
                "--data.channels first": f"{plural(self.shape[0], 'channel')}",
                "--data.channels last": f"{plural(self.shape[-1], 'channel')}",
                "--data.channels single": "one scale, as in a picture",
            },
        )

    def _gap(self, name: Channels) -> float:
        """How far the constants along a dimension are from those of all numbers, in deviations."""
        (mean, std), (centre, scale) = (map(np.array, self.known[form].mean_and_std()) for form in (name, "single"))
        return float(max((abs(mean - centre) / scale).max(), abs(np.log(std / scale)).max()))

    def _chance(self, name: Channels) -> float:
        """What a gap may be by chance."""
        return float(NOISE / np.sqrt(self.known[name].count.min()))

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
        return first_of([self.names[column] for column in columns])
