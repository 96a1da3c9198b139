"""Where data sets come from: one module per format, found by the name that a user gives."""

from importlib import import_module

from pydantic import ValidationError

from fedbench.config import DataConfig, Section, explain
from fedbench.data.cache import Source
from fedbench.data.dataset import Progress
from fedbench.errors import ConfigError, nearest

SOURCES = {
    "digits": "digits",
    "cifar10": "torchvision",
    "cifar100": "torchvision",
    "mnist": "torchvision",
    "fmnist": "torchvision",
    "parquet:PATH": "parquet",
    "folder:PATH": "folder",
}


def find(config: DataConfig, progress: Progress | None = None) -> Source:
    """The source that a configuration names; published files that are missing are downloaded. Raises ConfigError."""
    module = import_module(f"fedbench.data.sources.{module_of(config.name)}")
    return module.source(config, checked_options(config, module.Options), progress)


def module_of(name: str) -> str:
    prefix, colon, _ = name.partition(":")
    if name in SOURCES:
        return SOURCES[name]
    if colon:
        return SOURCES.get(f"{prefix}:PATH", "factory")
    raise ConfigError(f"unknown data set '{name}': {nearest(name, SOURCES)}; or package.module:factory of your own")


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
