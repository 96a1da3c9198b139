"""Data sets of the Hugging Face library `datasets`: what it has cached, can download, or has saved to a folder.

`hf:NAME`, `hf:OWNER/NAME` and `hf:OWNER/NAME/CONFIG` are names on the hub, `hf:PATH` is a folder. Columns are found as
the keys of items are (sources/factory.py); the class names that a column of labels declares are used.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedbench.config import DataConfig
from fedbench.data.cache import OnProgress, Source
from fedbench.data.reading.beside import Beside
from fedbench.data.reading.items import GivenPart, Keys
from fedbench.data.reading.parts import part_names, with_test_part
from fedbench.data.sources import factory
from fedbench.errors import ConfigError, first_line

SAVED = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` writes."""
HAS_COLUMNS = True


class Options(factory.Reading):
    config: str | None = Field(None, description="configuration of a set that has several (hf:OWNER/NAME/CONFIG)")
    test_part: Literal["test", "val"] | None = Field(
        None, description="split with the test samples (default: test, or validation if there is no test)"
    )


def source(config: DataConfig, options: Options, progress: OnProgress | None, beside: Beside) -> Source:
    library = import_library(config.name)
    splits, remarks = choose_splits(config.name, load_splits(config, options, library), options)
    keys = Keys(options.sample, options.label, options.user, beside)
    parts = {part: GivenPart.of(config.name, part, HubPart(data), keys) for part, data in splits.items()}
    if not options.collate and isinstance(parts["train"].item(0).image, str):
        raise ConfigError(
            f"data {config.name}: the samples are texts; tokenise them in a function that returns the tokens, as in "
            "docs/data.md (Texts), or name a column of tokens with --data.sample"
        )
    prints = {part: data._fingerprint for part, data in splits.items()}
    return factory.source_of_parts(config, parts, options, remarks, prints)


def import_library(name: str) -> Any:
    """The library. Raises ConfigError if it is not installed."""
    try:
        return import_module("datasets")
    except ImportError as error:
        raise ConfigError(
            f"data {name}: the library datasets is not installed ({first_line(error)}): pip install datasets"
        ) from error


def load_splits(config: DataConfig, options: Options, library: Any) -> dict[str, Any]:
    """The splits by name; one without a name is `train`. Raises ConfigError."""
    name = config.name.partition(":")[2]
    path = Path(config.root or ".", Path(name).expanduser())
    try:
        if any((path / file).is_file() for file in SAVED):
            data = library.load_from_disk(str(path))
        elif path.exists():
            data = library.load_dataset(str(path), options.config)
        else:
            owner_and_name, config_name = name.split("/")[:2], name.split("/")[2:]
            data = library.load_dataset("/".join(owner_and_name), "/".join(config_name) or options.config)
    except Exception as error:
        raise ConfigError(
            f"data {config.name}: the library datasets cannot load it ({first_line(error)}); write hf:NAME, "
            "hf:OWNER/NAME/CONFIG or hf:PATH, or set --data.config"
        ) from error
    return dict(data) if isinstance(data, Mapping) else {"train": data}


def choose_splits(name: str, splits: dict[str, Any], options: Options) -> tuple[dict[str, Any], list[str]]:
    """The splits of train, and perhaps test and val, and remarks. Raises ConfigError."""
    names = part_names(splits)
    parts = {part: splits[split] for part, split in names.items()}
    others = [split for split in splits if split not in names.values()]
    remarks = [f"splits that are not read: {', '.join(others)}"] if others else []
    if "train" not in parts:
        raise ConfigError(f"data {name}: no split train; it has {', '.join(splits)}")
    absent = f"{name} has no such split; it has {', '.join(splits)}"
    parts, lines = with_test_part(parts, options.test_part, absent)
    return parts, [*remarks, *lines]


class HubPart:
    """A split as a map-style data set. features: its columns, of which that of the labels may name the classes."""

    __slots__ = ("data", "features")  # without __dict__: nothing looks for numbers in memory, which may be all on disk

    def __init__(self, data: Any) -> None:
        self.data, self.features = data, data.features

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index]
