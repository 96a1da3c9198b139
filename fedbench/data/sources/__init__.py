"""Data sources: one module per data set, or per format if several data sets share it.

A module holds `Options` (its own keys `data.*`) and `source(config, options, progress)`.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fedbench.config import DataConfig, Section
from fedbench.config.words import explain
from fedbench.data.cache import OnProgress, Source
from fedbench.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedbench.data.reading.published import Published

FORMATS = {
    "idx": ("mnist", "fmnist", "emnist"),
    "cifar": ("cifar10", "cifar100"),
    "medmnist": ("organamnist", "organcmnist"),
    "domains": ("office-caltech10", "domainnet10", "pacs"),
    "parquet": ("parquet:PATH",),
    "folder": ("folder:PATH",),
    "csv": ("csv:PATH",),
    "factory": ("package.module:factory",),
}
"""Modules that serve several names."""
OWN = "package.module:factory, a function that returns the data (docs/data.md)"
FILES = {".csv": "csv:{}", ".parquet": "parquet:{}"} | dict.fromkeys(
    (".npz", ".npy", ".pt", ".pth", ".pkl", ".h5"), OWN
)
"""How to name a file, by its ending."""


def names() -> list[str]:
    """The legal values of `data.name`."""
    modules = [found.name for found in iter_modules(__path__)]
    found = [name for module in modules for name in FORMATS.get(module, (module.replace("_", "-"),))]
    return sorted(found, key=lambda name: (":" in name, name))


def find(config: DataConfig, progress: OnProgress | None = None) -> Source:
    """The configured source; downloads missing published files. Raises ConfigError."""
    module = import_module(f"{__name__}.{module_of(config.name)}")
    return module.source(config, checked_data_options(config, module.Options), progress)


def published_of(name: str) -> "Published | None":
    """Facts about a published set; None for other sets. Raises ConfigError for unknown names."""
    module = import_module(f"{__name__}.{module_of(name)}")
    return getattr(module, "PUBLISHED", {}).get(name)


def published_names() -> list[str]:
    """The published sets."""
    return [name for name in names() if ":" not in name and published_of(name)]


def module_of(name: str) -> str:
    prefix, colon, path = name.partition(":")
    known = names()
    if colon and not path and f"{prefix}:PATH" in known:
        raise ConfigError(f"--data {name} has no path: give one, for example --data {prefix}:pictures")
    if colon:
        return prefix if f"{prefix}:PATH" in known else "factory"
    if name in known:
        return next((module for module, served in FORMATS.items() if name in served), name.replace("-", "_"))
    if hint := FILES.get(Path(name).suffix.lower()) or ("folder:{}" if Path(name).is_dir() else ""):
        raise ConfigError(f"unknown data set '{name}': write {hint.format(name)}")
    raise ConfigError(f"unknown data set '{name}': {nearest(name, known)} (your own: package.module:factory)")


def checked_data_options(config: DataConfig, kind: type[Section]) -> Section:
    """The source's own keys `data.*`. Raises ConfigError for unknown ones."""
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
