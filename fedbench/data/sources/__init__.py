"""Data sources: one module per data set, or per format if several data sets share it.

A module holds `Options` (its own keys `data.*`) and `source(config, options, progress)`; or, for published sets,
`PUBLISHED` and `read` (reading/published.py). One whose samples have columns or keys by name takes a fourth argument,
the columns that a partition reads (reading/beside.py), and says so by `HAS_COLUMNS`.
"""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.config.section import make_section
from fedbench.data.cache import Content, OnProgress, Source
from fedbench.data.reading import published
from fedbench.data.reading.beside import DOMAIN, NOTHING, Beside
from fedbench.data.reading.published import PublishedSet
from fedbench.data.reading.targets import read_for_task
from fedbench.errors import ConfigError, nearest
from fedbench.plugins import PluginTable, modules
from fedbench.tasks import TASKS
from fedbench.tasks import load as load_task
from fedbench.tasks.targets import Targets
from fedbench.user_code import code_of
from fedbench.user_code.given_data import MEMORY

Options = TypeVar("Options", bound=Section)
FORMATS = {
    "idx": ("mnist", "fmnist", "emnist"),
    "cifar": ("cifar10", "cifar100"),
    "medmnist": ("organamnist", "organcmnist"),
    "domains": ("office-caltech10", "domainnet10", "pacs"),
    "parquet": ("parquet:PATH",),
    "folder": ("folder:PATH",),
    "csv": ("csv:PATH",),
    "scikit-learn": ("digits", "diabetes"),
    "leaf": ("leaf:PATH", "femnist", "shakespeare"),
    "pflib": ("pflib:PATH",),
    "hf": ("hf:PATH",),
    "factory": (),
    "memory": (),
}
"""Modules that serve several names."""
OWN_FACTORY = "package.module:factory, a function that returns the data (docs/data.md)"
NAME_BY_SUFFIX = {".csv": "csv:{}", ".parquet": "parquet:{}"} | dict.fromkeys(
    (".npz", ".npy", ".pt", ".pth", ".pkl", ".h5"), OWN_FACTORY
)
"""How to name a file, by its ending."""
COMPRESSED = (".gz", ".bz2", ".zip", ".xz", ".zst")
CHOSEN = ("auto", "classification", "multilabel", "regression")
"""Tasks that a source decides by its targets, or refuses."""


def _check(name: str, thing: Any) -> None:
    if not (callable(thing) or (isinstance(thing, ModuleType) and {"source", "Options"} <= {*vars(thing)})):
        raise ConfigError(f"data {name}: not a function")


FACTORY = "package.module:factory"
BUILT_IN = {name: path for file, path in modules(__name__, __path__).items() for name in FORMATS.get(file, (file,))}
SETS = PluginTable(
    "data set", group="fedbench.data", built_in=BUILT_IN, extra_names=(FACTORY,), form=FACTORY, check=_check
)


def names() -> list[str]:
    """The legal values of `data.name`."""
    return sorted(SETS.names(), key=lambda name: (":" in name, name))


def find_source(config: DataConfig, progress: OnProgress | None = None, beside: Beside = NOTHING) -> Source:
    """The configured source; downloads missing published files. beside: columns that are no features.

    Raises ConfigError.
    """
    if config.task not in CHOSEN:
        load_task(config.task)
    plugin, path = load(config.name), path_of(config.name)
    if not isinstance(plugin, ModuleType):
        from fedbench.data.sources import memory

        source = memory.source_of_factory(config, plugin, beside)
    elif getattr(plugin, "HAS_COLUMNS", False):
        source = plugin.source(config, checked_data_options(config, plugin.Options), progress, beside)
    else:
        if any(beside._replace(group=beside.group.removeprefix(DOMAIN))):
            raise ConfigError(
                f"{beside.first_key}: data {config.name} have no columns; {DOMAIN} is possible for partition.test_by, "
                "and partition.test last goes by the order of samples"
            )
        options = checked_data_options(config, plugin.Options)
        if published_set := getattr(plugin, "PUBLISHED", {}).get(config.name):
            source = published.source(config, options, progress, published_set, plugin.read)
        else:
            source = plugin.source(config, options, progress)
    if path:
        source = replace(source, options={**source.options, "code": code_of(path).fingerprint})
    return source if config.task in CHOSEN else read_by(config.task, source)


def read_by(task: str, source: Source) -> Source:
    """The source whose targets a task reads; where the source has read them itself, it gets what they were read as."""
    path = TASKS.path(task)

    def read() -> Content:
        content = source.read()

        def targets(values: np.ndarray) -> Targets:
            read = content.read_targets(values)
            if read.task == task:
                return read
            again = read_for_task(task, read.values, read.names, read.classes or None)
            return replace(again, labels=again.labels or read.labels, remarks=(*read.remarks, *again.remarks))

        return replace(content, targets=targets)

    options = {"task": task} | ({"task_code": code_of(path).fingerprint} if path else {})
    return replace(source, read=read, options={**source.options, **options})


def load(name: str) -> Any:
    """The module of a data set, or the function that makes it. Raises ConfigError."""
    if name.startswith(MEMORY):
        from fedbench.data.sources import memory

        return memory
    check_known(name)
    return SETS.load(own_name(name))


def check_known(name: str) -> None:
    """Raises ConfigError for a name that no data set has, or that lacks its path. Imports nothing."""
    if name.startswith(MEMORY):
        return
    known_name = own_name(name)
    hint = NAME_BY_SUFFIX.get(suffix_of(name)) or ("folder:{}" if Path(name).is_dir() else "")
    hint = hint or (OWN_FACTORY if Path(name).is_file() else "")
    if hint and known_name not in SETS.names() and ":" not in name:
        raise ConfigError(f"unknown data set '{name}': write {hint.format(name)}")
    if known_name != name and name.endswith(":"):
        raise ConfigError(f"--data {name} has no path: give one, for example --data {name}pictures")
    SETS.check_known(known_name)


def suffix_of(name: str) -> str:
    """The ending of a file's name, without that of its compression."""
    endings = [suffix.lower() for suffix in Path(name).suffixes]
    return next((suffix for suffix in reversed(endings) if suffix not in COMPRESSED), "")


def own_name(name: str) -> str:
    """What stands for a name in the table: `csv:a/b.csv` -> `csv:PATH`; other names as they are."""
    form = f"{name.partition(':')[0]}:PATH"
    return form if ":" in name and form in SETS.built_in else name


def path_of(name: str) -> str:
    """The package.module:name of a set that is not fedbench's own; empty for others."""
    return "" if name.startswith(MEMORY) else SETS.path(own_name(name))


def published_of(name: str) -> PublishedSet | None:
    """Facts about a published set; None for other sets. Raises ConfigError for unknown names."""
    return getattr(load(name), "PUBLISHED", {}).get(name) if own_name(name) in SETS.built_in else None


def published_names() -> list[str]:
    """The published sets."""
    return [name for name in sorted(SETS.built_in) if published_of(name)]


def checked_data_options(config: DataConfig, kind: type[Options]) -> Options:
    """The source's own keys `data.*`. Raises ConfigError for unknown ones."""
    known = kind.model_fields
    for key in config.options:
        if key not in known and kind.model_config.get("extra") != "allow":
            raise ConfigError(
                f"unknown key data.{key}: data {config.name} takes no such option; "
                f"{nearest(key, {*known, *DataConfig.model_fields} - {'name'})}"
            )
    return make_section(kind, config.options, "data.")
