"""Where data sets come from: one module per format, found by the name that a user gives."""

from importlib import import_module
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fedbench.config import DataConfig, Section, explain
from fedbench.data.cache import Source
from fedbench.data.dataset import Progress
from fedbench.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedbench.data.sources.published import Published

PUBLISHED_IN = {
    "mnist": "idx",
    "fmnist": "idx",
    "emnist": "idx",
    "svhn": "svhn",
    "cifar10": "cifar",
    "cifar100": "cifar",
    "cifar10c": "cifar10c",
    "cinic10": "cinic10",
    "mini-imagenet": "mini_imagenet",
    "tiny-imagenet": "tiny_imagenet",
    "organamnist": "medmnist",
    "organcmnist": "medmnist",
    "office-caltech10": "domains",
    "domainnet10": "domains",
    "pacs": "domains",
}
"""Sets that their makers publish, and the module of their format."""
SOURCES = {"digits": "digits", **PUBLISHED_IN, "parquet:PATH": "parquet", "folder:PATH": "folder"}


def find(config: DataConfig, progress: Progress | None = None) -> Source:
    """The source that a configuration names; published files that are missing are downloaded. Raises ConfigError."""
    module = import_module(f"fedbench.data.sources.{module_of(config.name)}")
    return module.source(config, checked_options(config, module.Options), progress)


def published_of(name: str) -> "Published | None":
    """What is known of a published set; None for sets of other kinds. Raises ConfigError for unknown names."""
    if name not in PUBLISHED_IN:
        module_of(name)
        return None
    module = import_module(f"fedbench.data.sources.{PUBLISHED_IN[name]}")
    found: Published = module.PUBLISHED[name]
    return found


def module_of(name: str) -> str:
    prefix, colon, path = name.partition(":")
    if colon and not path and f"{prefix}:PATH" in SOURCES:
        raise ConfigError(f"--data {name} names no path: give one, for example --data {prefix}:pictures")
    if name in SOURCES:
        return SOURCES[name]
    if colon:
        return SOURCES.get(f"{prefix}:PATH", "factory")
    raise ConfigError(f"unknown data set '{name}': {nearest(name, SOURCES)} (your own: package.module:factory)")


def checked_options(config: DataConfig, kind: type[Section]) -> Section:
    """The further keys `data.*`, which the chosen source must know."""
    known = kind.model_fields
    for key in config.options:
        if key not in known and kind.model_config.get("extra") != "allow":
            raise ConfigError(
                f"unknown key data.{key}: data {config.name} takes no such option; "
                f"{nearest(key, {*known, *DataConfig.model_fields} - {'name'})}"
            )
    try:
        return kind(**config.options)
    except ValidationError as error:
        raise ConfigError(explain(error, kind, prefix="data.")) from None
