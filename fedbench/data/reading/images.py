"""Decodes images, and names the place of every fault."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from fedbench.config.words import plural
from fedbench.data.cache import Block, Content
from fedbench.errors import ConfigError, first_line
from fedbench.processor import cores

GREY = {"1", "L", "LA"}
COLOUR = {"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr"}
DEEP = re.compile(r"(LA|RGB[AX]?|CMYK);16")
"""Pillow's names of stored pixels with 16 bits per channel."""
ITEMS_PER_BLOCK = 256
"""Number of images decoded at once."""


class Item(NamedTuple):
    """An image before decoding, its label, its place ('FILE, row 3'), and its domain if there are domains.

    beside: the values by which a partition groups and orders samples.
    """

    image: Any
    label: Any
    where: str
    domain: int | str | None = None
    beside: tuple[Any, Any] = (None, None)


def open_image(data: bytes | Path, where: str) -> Image.Image:
    """Opens an image and reads its header but not its pixels. Raises ConfigError."""
    if isinstance(data, Path) and data.exists() and not data.is_file():  # a pipe would be waited for
        raise ConfigError(f"{where}: neither a file nor a folder")
    try:
        image = Image.open(BytesIO(data) if isinstance(data, bytes) else data)
    except Exception as error:
        raise ConfigError(f"{where}: not an image that Pillow can read ({library_reason(error)})") from error
    check_format(image, where)
    return image


def check_format(image: Image.Image, where: str) -> None:
    """Raises ConfigError unless it is one image whose pixels have 8 bits per channel."""
    pages = getattr(image, "n_frames", 1)
    if pages > 1 and image.format != "MPO":  # a photograph with previews, of which viewers show the first
        raise ConfigError(
            f"{where}: {pages} pages; an image has one: save each page that is meant as a file of its own"
        )
    # Of 16 bits of a colour Pillow would read the upper eight.
    stored = [tile[3] if isinstance(tile[3], str) else tile[3][0] for tile in getattr(image, "tile", ()) if tile[3]]
    deep = next((form for form in map(str, stored) if DEEP.match(form)), None)
    if image.mode not in GREY | COLOUR or deep:
        raise ConfigError(
            f"{where}: pixel format {deep or image.mode}; 8 bits per channel are expected: convert it, or bring its "
            "numbers as an array"
        )


def library_reason(error: Exception) -> str:
    """A library's exception in one line."""
    text = first_line(error)
    # Pillow names the memory address of a stream that it cannot read, which is useless.
    return "unknown format" if "BytesIO" in text else text


def channels_of(items: Iterable[Item]) -> int:
    """1 if every image is greyscale, else 3. Reads headers up to the first colour image."""
    return 1 if all(open_image(item.image, item.where).mode in GREY for item in items) else 3


def pixels(
    image: Image.Image, channels: int, size: int | None, where: str, transparent: list[str] | None = None
) -> np.ndarray:
    """uint8 [channels, height, width], upright, resized to size x size if given. Raises ConfigError.

    transparent: collects the places of images with transparent pixels, which are read on a white background.
    """
    try:
        image = ImageOps.exif_transpose(image)
        if image.has_transparency_data and (opaque := on_white(image)) is not image:
            image = opaque
            if transparent is not None:
                transparent.append(where)
        mode = "L" if channels == 1 else "RGB"
        image = image if image.mode == mode else image.convert(mode)
        if size:
            image = image.resize((size, size), Image.Resampling.BILINEAR)
        values = np.asarray(image)
    except Exception as error:
        raise ConfigError(f"{where}: the image is damaged ({library_reason(error)})") from error
    return values[None] if channels == 1 else values.transpose(2, 0, 1)


def on_white(image: Image.Image) -> Image.Image:
    """The image on a white background; unchanged if all pixels are opaque."""
    layered = image.convert("RGBA")
    if layered.getchannel("A").getextrema() == (255, 255):
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), layered).convert("RGB")


def remarks_on(transparent: Sequence[str]) -> Iterator[str]:
    """Says how many images have transparent pixels."""
    if transparent:
        yield f"{len(transparent)} images have transparent pixels, read on white, for example {min(transparent)}"


def decoder(channels: int, size: int | None, transparent: list[str] | None = None) -> Callable[[Item], np.ndarray]:
    """Returns a function that decodes an item with encoded bytes or a path; transparent: as in `pixels`."""

    def decode(item: Item) -> np.ndarray:
        with open_image(item.image, item.where) as image:
            return pixels(image, channels, size, item.where, transparent)

    return decode


def decoded_blocks(items: Iterable[Item], decode: Callable[[Item], np.ndarray], what: str = "image") -> Iterator[Block]:
    """Decoded images (or samples named by `what`) of one shape, in order. Raises ConfigError for other shapes."""
    items, shape, threads = iter(items), None, min(8, cores())
    with ThreadPoolExecutor(threads) as pool:
        while chunk := list(islice(items, ITEMS_PER_BLOCK)):
            share = -(-len(chunk) // threads)
            shares = [chunk[start : start + share] for start in range(0, len(chunk), share)]
            # A chunk per task, not an image: handing over a small image costs as much as decoding it.
            arrays = [array for part in pool.map(lambda part: list(map(decode, part)), shares) for array in part]
            shape = shape or arrays[0].shape
            for item, array in zip(chunk, arrays, strict=True):
                check_shape(array.shape, shape, item.where, what)
            targets, domains = np.array([item.label for item in chunk]), [item.domain for item in chunk]
            yield Block(np.stack(arrays), targets, None if None in domains else np.array(domains))


def image_content(
    parts: Mapping[str, int], items: Callable[[], Iterable[Item]], size: int | None, channels: int | None, **more: Any
) -> Content:
    """A set of encoded images. parts: images of train, and perhaps val and test; items: all of them, in this order.

    size: resize to size x size; channels: None to detect them; more: other fields of the content.
    """
    transparent, val = list[str](), parts.get("val", 0)
    decode = decoder(channels or channels_of(items()), size, transparent)
    return Content(
        parts["train"] + val,
        parts.get("test", 0),
        decoded_blocks(items(), decode),
        val=val,
        one_part="test" not in parts,
        remarks=partial(remarks_on, transparent),
        **more,
    )


def check_shape(shape: tuple[int, ...], expected: tuple[int, ...], where: str, what: str) -> None:
    if shape == expected:
        return
    if what == "image" and len(shape) == 3:
        remedy = "data.size=N resizes them to NxN"
    elif len(shape) == 1:
        remedy = "crop sequences to one length, or fill them up with data.collate = pad"
    elif len(shape) == len(expected) == 3 and shape[1:] == expected[1:]:
        remedy = "convert all of them to RGB, or all to grey"
    elif len(shape) == 3:
        remedy = "resize or crop them to one size"
    else:
        remedy = "give all the same shape"
    raise ConfigError(
        f"{where}: the {what} is {shape_text(shape)}, those before it are {shape_text(expected)}; all must agree "
        f"({remedy})"
    )


def shape_text(shape: tuple[int, ...]) -> str:
    if len(shape) != 3:
        return f"of shape {list(shape)}"
    channels, height, width = shape
    return f"{width}x{height} of {plural(channels, 'channel')}"


def checked_label(value: Any, classes: int, where: str, hidden: str = "") -> int:
    """A label as an int. Raises ConfigError if it is missing, not a whole number, or outside the classes.

    classes: 0 if their number is unknown. hidden: remark on a label of -1.
    """
    if value is None:
        raise ConfigError(f"{where}: the label is missing")
    if not isinstance(value, int | np.integer):
        raise ConfigError(f"{where}: label {value!r} is not a whole number")
    if value < 0 or (classes and value >= classes):
        legal = f"0 to {classes - 1}" if classes else "0 and up"
        raise ConfigError(f"{where}: label {value} is outside the class range; {legal}{hidden if value == -1 else ''}")
    return int(value)
