"""What the samples of a data set are, as the first one tells: images, features or tokens; and how each is read.

Tensors, arrays, lists and PIL images of the same numbers are read to the same bits.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image

from fedbench.data.reading.images import COLOUR, GREY, Item, pixels
from fedbench.errors import ConfigError

SampleKind = Literal["image", "feature", "token"]
SAMPLE_KINDS = get_args(SampleKind)
COLOURS = (1, 3)
"""Channels that images have as a rule."""
EXACT = 2**24
"""Up to here float32 holds every whole number."""
WANTED = "a PIL image, or an array, tensor or list of numbers, is expected"


@dataclass(frozen=True)
class SampleReader:
    """Reads samples that are alike.

    kind: image: uint8 pixels or floats [channels, height, width]; feature: float32 as it stands; token: int64 as it
    stands. whole: whether images hold uint8. channels: of an image which of its three dimensions holds them, 0 or 2;
    None where there are two. remarks: how the samples are read, where there was a choice. transparent: the places of
    images with transparent pixels, so far.
    """

    kind: SampleKind
    whole: bool = False
    channels: int | None = None
    remarks: tuple[str, ...] = ()
    transparent: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, first: Item, kind: SampleKind | None = None) -> "SampleReader":
        """For samples like this one. kind: what they are, where that was said. Raises ConfigError."""
        value = first.image
        if isinstance(value, Image.Image):
            return cls(kind or "image", whole=True)
        array = as_array(value, first.where)
        whole = array.dtype.kind in "iu"
        if kind is None:
            kind, remarks = _kind_of(array)
        else:
            remarks = ()
        if kind != "image":
            return cls(kind, remarks=remarks)
        if array.ndim not in (2, 3):
            raise ConfigError(f"{first.where}: {_described(array)} is no image; [H, W], [H, W, C] or [C, H, W] is one")
        return cls(kind, whole, _channels(array.shape, isinstance(value, torch.Tensor)), remarks)

    def __call__(self, item: Item) -> np.ndarray:
        """One sample. Raises ConfigError where it does not fit to the first one."""
        if isinstance(item.image, Image.Image):
            return self._of_picture(item)
        array = as_array(item.image, item.where)
        if self.kind == "image":
            return self._image(array, item.where)
        return _tokens(array, item.where) if self.kind == "token" else _features(array, item.where)

    def _of_picture(self, item: Item) -> np.ndarray:
        image = item.image
        if image.mode not in GREY | COLOUR:
            raise ConfigError(f"{item.where}: pixels of kind {image.mode}; 8 bits per channel are expected")
        found = pixels(image, 1 if image.mode in GREY else 3, None, item.where, self.transparent)
        if self.kind == "image":
            return found
        return _tokens(found, item.where) if self.kind == "token" else _features(found, item.where)

    def _image(self, array: np.ndarray, where: str) -> np.ndarray:
        """[channels, height, width], uint8 or float32."""
        if array.ndim != (2 if self.channels is None else 3):
            raise ConfigError(f"{where}: {_described(array)}, where the first sample is an image of another shape")
        if self.whole:
            if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() <= 255):
                raise ConfigError(f"{where}: {_described(array)} has values that are no pixels, whole numbers to 255")
            array = array.astype(np.uint8)
        else:
            array = _features(array, where)
        if self.channels is None:
            return array[None]
        return np.ascontiguousarray(np.moveaxis(array, self.channels, 0))


def as_array(value: Any, where: str) -> np.ndarray:
    """Numbers of a tensor, array or list. Raises ConfigError for anything else, and for a single number."""
    if isinstance(value, torch.Tensor):
        value = value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
        value = value.numpy(force=True)
    elif isinstance(value, list | tuple):
        try:
            value = np.asarray(value)
        except ValueError:
            what = f"a {type(value).__name__} of unequal parts"
            raise ConfigError(
                f"{where}: the sample is {what}; bring one array, a sequence filled up to one length for example"
            ) from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        kind = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
        if isinstance(value, str):
            raise ConfigError(f"{where}: the sample is a str; of a text bring its tokens as whole numbers")
        raise ConfigError(f"{where}: the sample is a {kind}; {WANTED}")
    if not value.ndim or not value.size:
        what = "empty" if value.ndim else "a single number"
        raise ConfigError(f"{where}: the sample is {what}; an array with one dimension or more is expected")
    return value


def _kind_of(array: np.ndarray) -> tuple[SampleKind, tuple[str, ...]]:
    """What samples are where nobody said it, and what is to be said of it."""
    shape = list(array.shape)
    if array.dtype == np.uint8 and array.ndim in (2, 3):
        return "image", ()
    if array.dtype.kind in "iu":
        return "token", (
            f"samples {shape} of whole numbers ({array.dtype}) are tokens, which stay as they are; --data.kind feature "
            "where they are counts, --data.kind image where they are pixels",
        )
    if array.ndim == 3 and _channels(array.shape, True) == 2 and array.shape[2] in COLOURS:
        return "feature", (
            f"samples {shape} of floats are features as they stand; --data.kind image where they are pictures whose "
            "last dimension is the colour",
        )
    return ("image" if array.ndim == 3 and array.shape[0] in COLOURS and array.dtype.kind == "f" else "feature"), ()


def _channels(shape: tuple[int, ...], tensor: bool) -> int | None:
    """The dimension of the channels: the first or the last, whichever is smaller; as usual where both are alike."""
    if len(shape) == 2:
        return None
    if shape[0] == shape[2]:
        return 0 if tensor else 2
    return 0 if shape[0] < shape[2] else 2


def _features(array: np.ndarray, where: str) -> np.ndarray:
    """float32, of the same shape."""
    if array.dtype.kind in "iu" and max(abs(int(array.min())), abs(int(array.max()))) > EXACT:
        raise ConfigError(f"{where}: whole numbers beyond {EXACT:,} lose digits as float32; scale them beforehand")
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise ConfigError(f"{where}: values that are not finite; leave such samples out or fill them in")
    return values


def _tokens(array: np.ndarray, where: str) -> np.ndarray:
    """int64, of the same shape."""
    if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
        raise ConfigError(f"{where}: numbers that are not whole are no tokens; --data.kind feature takes them")
    if array.dtype == np.uint64 and int(array.max()) > np.iinfo(np.int64).max:
        raise ConfigError(f"{where}: {int(array.max())} is too large for a token")
    return array.astype(np.int64)


def _described(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"
