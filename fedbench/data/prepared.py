"""Prepared data sets for other processes and machines, identified by their content."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbench import cache_folder
from fedbench.data import cache
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError


@dataclass(frozen=True)
class PreparedDataset:
    """A folder of a cache. content: that of its data set, which identifies copies elsewhere.

    mean, std: the constants in use, which may differ from the folder's.
    """

    folder: Path
    content: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> "PreparedDataset":
        """Describes a data set in the cache."""
        assert dataset.folder is not None
        return cls(dataset.folder, dataset.content, dataset.mean, dataset.std)

    def find(self) -> Dataset | None:
        """The data set on this machine: in the same place, for example on a shared path, or in its own cache."""
        for folder in (self.folder, cache_folder.root() / "decoded" / self.folder.name, self._content_folder):
            if cache.is_usable(folder) and (found := Dataset.open(folder)).content == self.content:
                return found.with_constants(self.mean, self.std)
        return None

    def files(self) -> dict[str, np.ndarray]:
        """The contents of the folder's files by name, uint8, memory-mapped."""
        return {path.name: np.memmap(path, np.uint8, "r") for path in sorted(self.folder.iterdir())}

    def copy_here(self, files: Mapping[str, np.ndarray]) -> Dataset:
        """Writes the files to this machine's cache and opens the data set. Raises ConfigError."""
        with cache.hold_lock(self._content_folder.with_name(f"{self._content_folder.name}.lock")):
            if (here := self.find()) is not None:
                return here
            with (
                cache.refuse_disk_errors(self._content_folder.parent),
                cache.replace_folder(self._content_folder) as part,
            ):
                for name, content in files.items():
                    content.tofile(part / name)
        here = self.find()
        if here is None:
            raise ConfigError(
                f"{self._content_folder}: incomplete copy from another machine; delete it and start again"
            )
        return here

    @property
    def _content_folder(self) -> Path:
        """Named by content, because the folder's own name depends on the files it was decoded from."""
        return cache_folder.root() / "decoded" / f"{self.folder.name.rpartition('-')[0]}-{self.content}"
