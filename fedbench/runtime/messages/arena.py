"""Shared memory of a node, through which the driver and its hosts pass tensors without a copy.

The driver assigns the files; a file is free again when the last tensor that was read from it is gone.
"""

import errno
import mmap
import os
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import RunError
from fedbench.runtime.states.trees import ALIGNMENT

SMALLEST_SHARED = 4096
"""Bytes from which a tensor gets a place of its own; smaller tensors travel with their message."""
MOST_FILES = 1 << 15
"""Files in use at a time: half of what Linux lets a process map by default."""


@dataclass(frozen=True)
class TensorPlace:
    """The bytes of an arena file that hold a tensor."""

    file: int
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.offset + prod(self.shape) * self.dtype.itemsize


class Files:
    """The mapped files of a folder, by number. A file grows when more is written than fits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mapped: dict[int, np.ndarray] = {}

    def write(self, file: int, tensors: Sequence[Tensor]) -> list[TensorPlace]:
        """Copy tensors one after the other into a file. Raises OSError if there is no room."""
        places, end = [], 0
        for tensor in tensors:
            place = TensorPlace(file, align_up(end), tuple(tensor.shape), tensor.dtype)
            places.append(place)
            end = place.end
        mapped = torch.from_numpy(self.mapping(file, end))
        for tensor, place in zip(tensors, places, strict=True):
            view_of(mapped, place).copy_(tensor)
        return places

    def read(self, place: TensorPlace) -> Tensor:
        """The tensor at a place: a view of the file. Raises RunError if the file was deleted."""
        return view_of(torch.from_numpy(self.existing_mapping(place.file, place.end)), place)

    def mapping(self, file: int, size: int) -> np.ndarray:
        """A uint8 view of a whole file of at least `size` bytes; the same array until the file grows."""
        known = self._mapped.get(file)
        if known is None or len(known) < size:
            known = self._mapped[file] = self._map(file, size, os.O_RDWR | os.O_CREAT)
        return known

    def existing_mapping(self, file: int, size: int) -> np.ndarray:
        """As `mapping`, of a file that another process has written. Raises RunError if the file was deleted."""
        known = self._mapped.get(file)
        if known is None or len(known) < size:
            try:
                known = self._mapped[file] = self._map(file, size, os.O_RDWR)
            except FileNotFoundError:  # a new file would be read as zeros
                raise RunError(
                    f"{self.folder / str(file)}: a message in transit was deleted; repeat the command, which continues "
                    "from the last checkpoint, and keep others from cleaning up there (or set resources.scratch)"
                ) from None
        return known

    def _map(self, file: int, size: int, how: int) -> np.ndarray:
        handle = os.open(self.folder / str(file), how, 0o600)
        try:
            if os.fstat(handle).st_size < size:
                # Reserves the pages: otherwise, if memory is full, the first write would kill the process.
                os.posix_fallocate(handle, 0, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
            whole = os.fstat(handle).st_size
        finally:
            os.close(handle)
        # Python's mmap would keep a descriptor open for every file.
        return torch.from_file(str(self.folder / str(file)), shared=True, size=whole, dtype=torch.uint8).numpy()


class Arena:
    """The driver's side, which tracks the files in use."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = Files(folder)
        self._sizes: list[int] = []
        self._free: set[int] = set()
        self._readers: Counter[int] = Counter()
        self._at: dict[int, int] = {}  # address of its mapping -> file

    @property
    def room(self) -> int:
        """How many more files may be taken."""
        return MOST_FILES - len(self._sizes) + len(self._free)

    def take(self, size: int) -> int:
        """Take a free file, if possible of about this size. Raises OSError if too many are in use."""
        if not self._free:
            if not self.room:
                raise OSError(errno.ENFILE, f"{MOST_FILES} files in use")
            self._sizes.append(0)
            return len(self._sizes) - 1
        file = min(self._free, key=lambda file: (abs(self._sizes[file] - size), file))
        self._free.remove(file)
        return file

    def give_back(self, file: int) -> None:
        """Return a file that will not be written; it is free once no tensor of it is left."""
        if not self._readers[file]:
            self._free.add(file)

    def store(self, tensor: Tensor) -> tuple[TensorPlace, Tensor]:
        """Returns a tensor's place, copying it if it is not in the arena, and the tensor that keeps the place."""
        known = self._place_of(tensor)
        if known:
            return known, tensor
        twin = self.empty_like(tensor).copy_(tensor)
        place = self._place_of(twin)
        assert place is not None
        return place, twin

    def empty_like(self, tensor: Tensor) -> Tensor:
        """A tensor of this shape and type in a free file. Raises OSError if there is no room."""
        file = self.take(tensor.nbytes)
        place = TensorPlace(file, 0, tuple(tensor.shape), tensor.dtype)
        try:
            self._files.mapping(file, place.end)
        except OSError:
            self.give_back(file)
            raise
        return self.read([place])[0]

    def read(self, places: Sequence[TensorPlace]) -> list[Tensor]:
        """The tensors at places of one taken file, which is free again when all are gone."""
        file, end = places[0].file, max(place.end for place in places)
        whole = self._files.existing_mapping(file, end)
        if len(whole) != self._sizes[file]:  # it has grown and moved
            self._at = {at: known for at, known in self._at.items() if known != file}
            self._at[whole.ctypes.data], self._sizes[file] = file, len(whole)
        return [self._lease(whole, place) for place in places]

    def _lease(self, whole: np.ndarray, place: TensorPlace) -> Tensor:
        lease = whole.view()
        self._readers[place.file] += 1
        weakref.finalize(lease, self._end_lease, place.file).atexit = False
        return view_of(torch.from_numpy(lease), place)

    def _end_lease(self, file: int) -> None:
        self._readers[file] -= 1
        self.give_back(file)

    def _place_of(self, tensor: Tensor) -> TensorPlace | None:
        start = tensor.untyped_storage().data_ptr()
        file = self._at.get(start)
        if file is None or not tensor.is_contiguous():
            return None
        return TensorPlace(file, tensor.data_ptr() - start, tuple(tensor.shape), tensor.dtype)


def align_up(position: int) -> int:
    """The first offset from `position` at which a tensor may start."""
    return -(-position // ALIGNMENT) * ALIGNMENT


def view_of(whole: Tensor, place: TensorPlace) -> Tensor:
    """The tensor at a place of a mapped file `whole`, uint8."""
    return whole[place.offset : place.end].view(place.dtype).view(place.shape)
