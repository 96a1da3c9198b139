"""The kind of a data set's samples (images, features or tokens), from the first one, and how to read them.

Tensors, arrays, lists and PIL images of the same numbers give the same bits.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from fedbench.data.description import Decision
from fedbench.data.normalisation import Channels
from fedbench.data.reading.images import GREY, Item, check_format, pixels
from fedbench.errors import ConfigError, open_decision

SampleKind = Literal["image", "feature", "token"]
MEANING: dict[SampleKind, str] = {
    "image": "samples are images",
    "feature": "samples are numbers",
    "token": "samples are tokens",
}
COLOURS = (1, 3)
"""Usual numbers of channels of images."""
EXACT = 2**24
"""Float32 represents all integers up to this one."""
WANTED = "expected a PIL image, or an array, tensor or list of numbers"


@dataclass(frozen=True)
class SampleReader:
    """Reads samples of the same kind.

    kind: image: uint8 pixels or floats [channels, height, width]; feature: float32, unchanged; token: int64, unchanged.
    whole: whether images are uint8. channels: the dimension of an image's channels, 0 or 2; None for two dimensions.
    floats: whether the first sample holds floats, beside which pixels of 0 to 255 are another scale. pictures: whether
    it is a PIL image. constants: the dimension of features along which they are measured, None to find it. remarks:
    how the samples are read, if there was a choice; decisions: the same for all. transparent: places of images with
    transparent pixels so far.
    """

    kind: SampleKind
    whole: bool = False
    channels: int | None = None
    remarks: tuple[str, ...] = ()
    transparent: list[str] = field(default_factory=list)
    floats: bool = False
    pictures: bool = False
    constants: Channels | None = "first"
    decisions: tuple[Decision, ...] = ()

    @classmethod
    def of(cls, first: Item, kind: SampleKind | None = None, channels: Channels | None = None) -> "SampleReader":
        """A reader for samples like this one. kind, channels: what they and their channels are, if set.

        Raises ConfigError.
        """
        reader = cls._like(first, kind, channels)
        decided = [Decision("samples", MEANING[reader.kind], "given" if kind else "certain", "data.kind", reader.kind)]
        if channels:
            text = "channels are single" if channels == "single" else f"{channels} dimension is the channels"
            decided.append(Decision("samples", f"their {text}", "given", "data.channels", channels))
        return replace(reader, decisions=tuple(decided))

    @classmethod
    def _like(cls, first: Item, kind: SampleKind | None, setting: Channels | None) -> "SampleReader":
        value = first.image
        if isinstance(value, Image.Image):
            _refuse_channels(first.where, setting, False, "a picture")
            return cls(kind or "image", whole=True, pictures=True)
        array = as_array(value, first.where)
        whole, floats = array.dtype.kind in "iu", array.dtype.kind == "f"
        kind, remarks = (kind, ()) if kind else _kind_of(array)
        if kind != "image":
            several = kind == "feature" and array.ndim > 1
            _refuse_channels(first.where, setting, several, _describe_array(array))
            constants, floats = setting if several else "first", floats and kind == "feature"
            return cls(kind, remarks=remarks, floats=floats, constants=constants)
        if array.ndim not in (2, 3):
            raise ConfigError(
                f"{first.where}: {_describe_array(array)} is not an image, which is [H, W], [H, W, C] or [C, H, W]"
            )
        _refuse_channels(first.where, setting, array.ndim == 3 and setting != "single", _describe_array(array))
        channels = _channels(array.shape, isinstance(value, torch.Tensor))
        if setting:
            channels = 0 if setting == "first" else 2
        elif channels is not None and not _agree_on(channels, array.shape):
            keys = {"first": "the first dimension is the colour", "last": "the last one is"}
            choices = {f"--data.channels {key}": meaning for key, meaning in keys.items()}
            raise open_decision(first.where, f"an image of shape {[*array.shape]}", choices)
        return cls(kind, whole, channels, remarks, floats=floats)

    def __call__(self, item: Item) -> np.ndarray:
        """Reads one sample. Raises ConfigError if it differs from the first one."""
        if isinstance(item.image, Image.Image):
            check_format(item.image, item.where)
            if self.floats:
                raise scale_error("a PIL image", item.where)
            array = pixels(item.image, 1 if item.image.mode in GREY else 3, None, item.where, self.transparent)
            if self.kind == "image":
                return array
        else:
            array = as_array(item.image, item.where)
            if self.floats and array.dtype == np.uint8:
                raise scale_error(_describe_array(array), item.where)
            if self.kind == "image":
                return self._image(array, item.where)
        return as_tokens(array, item.where) if self.kind == "token" else as_features(array, item.where)

    def _image(self, array: np.ndarray, where: str) -> np.ndarray:
        """[channels, height, width], uint8 or float32."""
        if array.ndim != (2 if self.channels is None else 3):
            first = "a PIL image" if self.pictures else "an image of another shape"
            raise ConfigError(f"{where}: {_describe_array(array)}, but the first sample is {first}")
        if self.whole:
            if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() <= 255):
                raise ConfigError(
                    f"{where}: {_describe_array(array)} has values that are not pixels (whole numbers up to 255)"
                )
            array = array.astype(np.uint8)
        else:
            array = as_features(array, where)
        if self.channels is None:
            return array[None]
        return np.ascontiguousarray(np.moveaxis(array, self.channels, 0))


def as_array(value: Any, where: str) -> np.ndarray:
    """Converts a tensor, array or list to an array. Raises ConfigError for anything else, and for a single number."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise ConfigError(f"{where}: the sample is a sparse tensor; pass it dense, x.to_dense()")
        value = value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
        value = value.numpy(force=True)
    elif isinstance(value, list | tuple):
        try:
            value = np.asarray(value)
        except ValueError:
            what = f"a {type(value).__name__} of unequal parts"
            raise ConfigError(f"{where}: the sample is {what}; pass one array, for example a padded sequence") from None
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise ConfigError(f"{where}: the sample has masked numbers; fill them in, x.filled(...), or leave it out")
        value = value.data
    if isinstance(value, int | float | np.number):
        raise ConfigError(
            f"{where}: the sample is a single number; expected an array with at least one dimension, as X[:, None] "
            "holds them"
        )
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        raise ConfigError(
            f"{where}: the sample is an array of texts or other objects; encode them as numbers beforehand"
        )
    if isinstance(value, np.void):
        raise ConfigError(f"{where}: the sample is a record; pass a pandas DataFrame, whose columns are features")
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        kind = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
        if isinstance(value, str):
            raise ConfigError(f"{where}: the sample is a str; pass the tokens of a text as whole numbers")
        raise ConfigError(f"{where}: the sample is a {kind}; {WANTED}")
    if not value.ndim or not value.size:
        what = "empty" if value.ndim else "a single number"
        raise ConfigError(f"{where}: the sample is {what}; expected an array with at least one dimension")
    return value


def _kind_of(array: np.ndarray) -> tuple[SampleKind, tuple[str, ...]]:
    """The default kind of samples, and a remark on it."""
    shape = list(array.shape)
    if array.dtype == np.uint8 and array.ndim in (2, 3):
        return "image", ()
    if array.dtype.kind in "iu":
        return "token", (
            f"samples {shape} of whole numbers ({array.dtype}) are tokens and stay unchanged; use --data.kind feature "
            "for counts, --data.kind image for pixels",
        )
    if array.ndim == 3 and _channels(array.shape, True) == 2 and array.shape[2] in COLOURS:
        return "feature", (
            f"samples {shape} of floats are features and stay unchanged; use --data.kind image for images whose "
            "last dimension is the colour",
        )
    return ("image" if array.ndim == 3 and array.shape[0] in COLOURS and array.dtype.kind == "f" else "feature"), ()


def _channels(shape: tuple[int, ...], tensor: bool) -> int | None:
    """The dimension of the channels: the first or the last, whichever is smaller; the usual one if they are equal."""
    if len(shape) == 2:
        return None
    if shape[0] == shape[2]:
        return 0 if tensor else 2
    return 0 if shape[0] < shape[2] else 2


def _agree_on(channels: int, shape: tuple[int, ...]) -> bool:
    """Whether whatever speaks for the first or the last dimension as that of the channels speaks for this one.

    One of them is smaller, is a number of colours, or is beside two equal ones, which are height and width.
    """
    first, middle, last = shape
    if first == last or {first, last} <= {*COLOURS}:
        return False
    by_colours = {2 * place for place, size in enumerate((first, last)) if size in COLOURS}
    by_square = {0} if middle == last else {2} if first == middle else set()
    return by_colours | by_square <= {channels}


def _refuse_channels(where: str, channels: Channels | None, possible: bool, what: str) -> None:
    """Raises ConfigError if the channels are set for samples that have no such dimension."""
    if channels and not possible:
        raise ConfigError(f"data.channels = {channels}: {where} is {what} and has no such dimension; leave it out")


def as_features(array: np.ndarray, where: str) -> np.ndarray:
    """float32, of the same shape."""
    if array.dtype.kind in "iu" and max(abs(int(array.min())), abs(int(array.max()))) > EXACT:
        raise ConfigError(f"{where}: whole numbers beyond {EXACT:,} lose digits in float32; scale them beforehand")
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise ConfigError(f"{where}: contains values that are not finite; remove such samples or fill them in")
    return values


def as_tokens(array: np.ndarray, where: str) -> np.ndarray:
    """int64, of the same shape."""
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        raise ConfigError(f"{where}: fractional numbers are not tokens; use --data.kind feature")
    if array.dtype == np.uint64 and int(array.max()) > np.iinfo(np.int64).max:
        raise ConfigError(f"{where}: {int(array.max())} is too large for a token")
    return array.astype(np.int64)


def scale_error(pixels: str, where: str) -> ConfigError:
    """Pixels beside a first sample that holds floats."""
    return ConfigError(f"{where}: {pixels}, but the first sample holds floats; bring all of one type and scale")


def _describe_array(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"
