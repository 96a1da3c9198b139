"""Reads what describes a run in its folder; a file that is missing or damaged is named."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.checksums import CHANGED, changes, is_changed, is_text_changed, others_in
from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.errors import ConfigError
from fedbench.results.files import UNREADABLE, damage_error


def check_description(folder: Path, seeds: Sequence[int]) -> None:
    """Raises ConfigError if the description of a run is missing or damaged."""
    described = kept_json(folder / "environment.json")
    prints = described.get("partition_fingerprint")
    arrays = folder / "partition.npz"  # if there are many clients
    dealt = arrays if arrays.exists() else folder / "partition.json"
    if not isinstance(prints, dict) or not {str(seed) for seed in seeds} <= prints.keys():
        raise damage_error(folder / "environment.json", "without the partition_fingerprint of every seed")
    for name, why in changes(folder, others_in(described, "environment.json")):
        raise damage_error(folder / name, why)
    if not {str(seed) for seed in seeds} <= set(_kept_arrays(dealt) if dealt == arrays else kept_json(dealt)):
        raise damage_error(dealt, "without the partition of every seed")


def _kept_arrays(path: Path) -> set[str]:
    """The seeds of partition.npz, without reading the arrays. Raises ConfigError if it is damaged."""
    try:
        with np.load(path) as file:
            return {name.partition("/")[0] for name in file.files}
    except UNREADABLE:
        raise damage_error(path, "damaged") from None


def kept_json(path: Path) -> dict[str, Any]:
    """The content of a run's JSON file. Raises ConfigError if it is missing or damaged."""
    try:
        value = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        raise damage_error(path, "missing or damaged") from None
    if is_changed(value, path.name):
        raise damage_error(path, CHANGED)
    return value


def kept_config(folder: Path) -> Config:
    """The configuration of a run. Raises ConfigError if it cannot be read."""
    path = folder / "config.yaml"
    try:
        config = Config(**load_yaml(path))
    except (ConfigError, TypeError) as error:
        why = str(error).removeprefix(f"--config {path}: ")
        raise damage_error(path, f"{why}; damaged, or written by another version of fedbench") from None
    if is_text_changed(path.read_text()):
        raise damage_error(path, CHANGED)
    return config
