"""A prepared data set as other processes and other machines know it: by what is in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbench.data import cache
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError


@dataclass(frozen=True)
class Prepared:
    """A folder of a cache. digest: of samples, targets and domains, by which a copy elsewhere is known.

    mean, std: the constants in use, which need not be those of the folder.
    """

    folder: Path
    digest: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> "Prepared":
        """What tells a data set that lies in the cache from all others."""
        assert dataset.folder is not None
        return cls(dataset.folder, cache.digest_of(dataset.folder), dataset.mean, dataset.std)

    def found(self) -> Dataset | None:
        """The data set as it lies on this machine: in the same place, on a shared path say, or in its own cache."""
        for folder in (self.folder, self._own, self._copied):
            if cache.is_usable(folder) and cache.digest_of(folder) == self.digest:
                return Dataset.open(folder).normalised(self.mean, self.std)
        return None

    def files(self) -> dict[str, np.ndarray]:
        """Content of the folder's files by name, uint8, memory-mapped."""
        return {path.name: np.memmap(path, np.uint8, "r") for path in sorted(self.folder.iterdir())}

    def written(self, files: Mapping[str, np.ndarray]) -> Dataset:
        """The data set out of its files, in this machine's cache from now on. Raises ConfigError."""
        with cache.hold_lock(self._copied.with_name(f"{self._copied.name}.lock")):
            if (here := self.found()) is not None:
                return here
            with cache.refuse_disk_errors(self._copied.parent), cache.replace_folder(self._copied) as part:
                for name, content in files.items():
                    content.tofile(part / name)
        here = self.found()
        if here is None:
            raise ConfigError(f"{self._copied}: what another machine sent is not whole; delete it and start again")
        return here

    @property
    def _own(self) -> Path:
        return cache.root() / "decoded" / self.folder.name

    @property
    def _copied(self) -> Path:
        """By its content, because the folder's own name says which files it was decoded from elsewhere."""
        return cache.root() / "decoded" / f"{self.folder.name.rpartition('-')[0]}-{self.digest[:12]}"
