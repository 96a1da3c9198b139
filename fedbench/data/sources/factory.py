"""Any map-style data set: a function package.module:factory that makes its two parts.

`factory(train: bool)` gives a part per call, `factory()` the pair (train, test). An item is (sample, target), or
(sample, target, domain) where the training part names its `domains`. A sample is an image: a PIL image, a uint8 array
[H, W] or [H, W, C], a uint8 tensor [C, H, W] or a float tensor [C, H, W] in [0, 1]. Or it is another array or tensor:
floats are features, whole numbers are tokens. A target is a class, a whole number from 0, or one or more floats, which
makes the task a regression; a domain is a whole number from 0. Further keys `data.*` are arguments of the factory.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from pydantic import ConfigDict, Field

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading.images import COLOUR, GREY, Item, blocks, checked_label, pixels
from fedbench.errors import ConfigError, nearest
from fedbench.import_string import import_string

PROBES = 32
"""Items per part that are looked at on every start, to notice that the data changed."""


class Options(Section):
    """Keys `data.*`: the number of classes, and whatever the factory takes."""

    model_config = ConfigDict(extra="allow")
    classes: int | None = Field(
        None, ge=1, description="number of classes (default: the data set's `classes`, or by the labels)"
    )


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    train, test = make_parts(config, dict(options.model_extra or {}))
    probed = hashlib.sha256()
    for part, data in (("train", train), ("test", test)):
        probe(data, f"data {config.name}, {part} item", probed)
    module = sys.modules[config.name.partition(":")[0]]
    files = tuple(Path(file) for file in (getattr(module, "__file__", None),) if file)
    decided = {"config": config.options, "sizes": [len(train), len(test)], "probed": probed.hexdigest()}
    return Source(config.name, partial(read, config.name, train, test, options.classes), files, decided)


def make_parts(config: DataConfig, options: dict[str, Any]) -> tuple[Any, Any]:
    """The two parts that the factory makes. Raises ConfigError."""
    factory = import_string(config.name, "data")
    if not callable(factory):
        raise ConfigError(f"data {config.name}: not a function")
    accepted = inspect.signature(factory).parameters
    if config.root:
        options["root"] = config.root
    check_arguments(config.name, accepted, options)
    try:
        if "train" in accepted:
            parts = factory(train=True, **options), factory(train=False, **options)
        else:
            parts = factory(**options)
        return checked_pair(config.name, parts)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"data {config.name}: the factory failed ({type(error).__name__}: {error})") from error


def check_arguments(name: str, accepted: Any, options: dict[str, Any]) -> None:
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for key in options:
        if key not in accepted and not takes_any:
            known = {*accepted, "classes", "root", "val"} - {"train"}
            raise ConfigError(f"unknown key data.{key}: {name} takes no such argument; {nearest(key, known)}")


def checked_pair(name: str, parts: Any) -> tuple[Any, Any]:
    try:
        train, test = parts
        sized = [len(part) for part in (train, test)]
    except (TypeError, ValueError):
        raise ConfigError(
            f"data {name}: factory(train: bool), or factory() that returns (train, test), is expected"
        ) from None
    if not all(sized):
        raise ConfigError(f"data {name}: {sized[0]} training and {sized[1]} test items; both are needed")
    return train, test


def probe(data: Any, where: str, digest: Any) -> None:
    """Feed a few items, evenly spread, to a digest. Raises ConfigError where an item differs when it is asked again."""
    for index in sorted({round(i) for i in np.linspace(0, len(data) - 1, PROBES)}):
        first, again = (to_sample(item(data, index, f"{where} {index}")) for _ in range(2))
        if first.shape != again.shape or (first != again).any():
            raise ConfigError(
                f"{where} {index}: another sample when asked again; each is read once, so leave random transforms out"
            )
        digest.update(str(data[index][1:]).encode() + first.tobytes())


def item(data: Any, index: int, where: str) -> Item:
    """One item with its label as it came. Raises ConfigError."""
    try:
        sample, target, *domain = data[index]
    except Exception as error:
        raise ConfigError(f"{where}: cannot be read as (sample, target) ({type(error).__name__}: {error})") from error
    return Item(sample, plain(target), where, plain(domain[0]) if domain else None)


def plain(value: Any) -> Any:
    """A number out of a tensor or array of one; an array out of a larger tensor."""
    if isinstance(value, torch.Tensor):
        value = value.numpy(force=True)
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value


def to_sample(found: Item) -> np.ndarray:
    """uint8 [channels, height, width], float32 features or int64 tokens. Raises ConfigError."""
    array = found.image
    if isinstance(array, torch.Tensor) and (array.ndim != 3 or not array.is_floating_point()):
        array = array.numpy(force=True) if array.dtype != torch.uint8 else array
    if isinstance(array, np.ndarray) and array.dtype != np.uint8 and array.ndim:
        if np.issubdtype(array.dtype, np.integer):
            return array.astype(np.int64)
        if np.issubdtype(array.dtype, np.floating):
            return finite(array.astype(np.float32), found.where)
    return to_pixels(found)


def finite(values: np.ndarray, where: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise ConfigError(f"{where}: values that are not finite; leave such samples out or fill them in")
    return values


def to_pixels(found: Item) -> np.ndarray:
    """uint8 [channels, height, width]. Raises ConfigError."""
    image = found.image
    if isinstance(image, Image.Image):
        if image.mode not in GREY | COLOUR:
            raise ConfigError(f"{found.where}: pixels of kind {image.mode}; 8 bits per channel are expected")
        return pixels(image, 1 if image.mode in GREY else 3, None, found.where)
    if isinstance(image, torch.Tensor):
        return from_tensor(image, found.where)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim in (2, 3):
        return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    kind = f"{image.dtype} array {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
    raise ConfigError(
        f"{found.where}: the image is a {kind}; a PIL image, a uint8 array [H, W] or [H, W, C], or a tensor [C, H, W]"
    )


def from_tensor(image: torch.Tensor, where: str) -> np.ndarray:
    if image.ndim != 3 or not (image.dtype == torch.uint8 or image.is_floating_point()):
        raise ConfigError(f"{where}: a {image.dtype} tensor {list(image.shape)}; uint8 or float [C, H, W] is expected")
    if image.dtype == torch.uint8:
        return image.numpy(force=True)
    if not bool(((image >= 0) & (image <= 1)).all()):
        raise ConfigError(f"{where}: values outside [0, 1]; leave normalisation out, it is done on the device")
    return (image * 255).round().to(torch.uint8).numpy(force=True)


def read(name: str, train: Any, test: Any, classes: int | None) -> Content:
    names = tuple(map(str, getattr(train, "classes", None) or ()))
    domains = tuple(map(str, getattr(train, "domains", None) or ()))
    classes = classes or len(names) or None
    count = len(train) + len(test)
    first = item(train, 0, f"data {name}, training item 0").label
    numbers = np.issubdtype(np.asarray(first).dtype, np.floating)

    def items(part: str, data: Any) -> Iterator[Item]:
        for index in range(len(data)):
            found = item(data, index, f"data {name}, {part} item {index}")
            checked = (
                checked_numbers(found, first) if numbers else checked_label(found.label, classes, count, found.where)
            )
            yield found._replace(label=checked, domain=checked_domain(found, len(domains)))

    everything = blocks(chain(items("train", train), items("test", test)), to_sample)
    if numbers:
        return Content(len(train), len(test), everything, domain_names=domains, task="regression")
    return Content(len(train), len(test), everything, classes, names, domain_names=domains)


def checked_numbers(found: Item, first: Any) -> np.ndarray:
    """A target of floats, shaped like the first one. Raises ConfigError."""
    values = np.asarray(found.label, np.float32)
    if values.shape != np.shape(first):
        raise ConfigError(
            f"{found.where}: a target of shape {list(values.shape)}, the first is {list(np.shape(first))}"
        )
    return finite(values, found.where)


def checked_domain(found: Item, domains: int) -> int | None:
    """The number of an item's domain; None where the data set names no domains. Raises ConfigError."""
    if not domains:
        return None
    if not isinstance(found.domain, int | np.integer) or not 0 <= found.domain < domains:
        raise ConfigError(f"{found.where}: domain {found.domain!r}; a number from 0 to {domains - 1} is expected")
    return int(found.domain)
