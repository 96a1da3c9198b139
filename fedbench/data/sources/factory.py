"""Any map-style data set: a function package.module:factory that makes its two parts.

`factory(train: bool)` gives one part per call, `factory()` gives the pair (train, test). An item is (image, label), or
(image, label, domain) where the training part names its `domains`. An image is a PIL image, a uint8 array [H, W] or
[H, W, C], a uint8 tensor [C, H, W] or a float tensor [C, H, W] in [0, 1]; label and domain are whole numbers from 0.
Further keys `data.*` are arguments of the factory.
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
from fedbench.data.cache import Content, Source
from fedbench.data.dataset import Progress
from fedbench.data.sources.images import COLOUR, GREY, Item, blocks, checked_label, pixels
from fedbench.dotted import import_dotted
from fedbench.errors import ConfigError, nearest

PROBES = 32
"""Items per part that are looked at on every start, to notice that the data changed."""


class Options(Section):
    """Keys `data.*`: the number of classes, and whatever the factory takes."""

    model_config = ConfigDict(extra="allow")
    classes: int | None = Field(
        None, ge=1, description="number of classes (default: the data set's `classes`, or by the labels)"
    )


def source(config: DataConfig, options: Options, progress: Progress | None) -> Source:
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
    factory = import_dotted(config.name, "data")
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
        first, again = (to_pixels(item(data, index, f"{where} {index}")) for _ in range(2))
        if first.shape != again.shape or (first != again).any():
            raise ConfigError(
                f"{where} {index}: another image when asked again; images are read once, so leave random transforms out"
            )
        digest.update(str(data[index][1:]).encode() + first.tobytes())


def item(data: Any, index: int, where: str) -> Item:
    """One item with its label as it came. Raises ConfigError."""
    try:
        image, label, *domain = data[index]
    except Exception as error:
        raise ConfigError(f"{where}: cannot be read as (image, label) ({type(error).__name__}: {error})") from error
    return Item(image, plain(label), where, plain(domain[0]) if domain else None)


def plain(value: Any) -> Any:
    """A number out of a tensor of one."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


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
    images = len(train) + len(test)

    def items(part: str, data: Any) -> Iterator[Item]:
        for index in range(len(data)):
            found = item(data, index, f"data {name}, {part} item {index}")
            label = checked_label(found.label, classes, images, found.where)
            yield found._replace(label=label, domain=checked_domain(found, len(domains)))

    everything = chain(items("train", train), items("test", test))
    return Content(len(train), len(test), blocks(everything, to_pixels), classes, names, domain_names=domains)


def checked_domain(found: Item, domains: int) -> int | None:
    """The number of an item's domain; None where the data set names no domains. Raises ConfigError."""
    if not domains:
        return None
    if not isinstance(found.domain, int | np.integer) or not 0 <= found.domain < domains:
        raise ConfigError(f"{found.where}: domain {found.domain!r}; a number from 0 to {domains - 1} is expected")
    return int(found.domain)
