"""Parallel work on the columns of long vectors, with the same bits for any number of cores."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fedbench.processor import cores

T = TypeVar("T", Tensor, np.ndarray, None)

# Not powers of two: rows that far apart share a few cache lines, and a product then takes up to twice as long.
CHUNK_COLUMNS = 64_000

GATHERED = 22_000
"""Columns per chunk if all clients' rows are held at once: 9 MB for 100 clients. A multiple of 8."""

PIECE = 2_000
"""Columns of a part of such a chunk that stays in a core's cache between operations."""

PRODUCTS = 8_000
"""Columns per chunk for reading, multiplying and writing row by row: with fewer, calls cost more than they save."""


_libraries = ThreadpoolController()
"""NumPy's BLAS library, which would start threads in each of ours."""


def by_columns(work: Callable[[slice], None], size: int, columns: int = CHUNK_COLUMNS) -> None:
    """Runs `work` on column ranges in parallel, each on one core.

    Chunks have a fixed size, so the bits depend neither on the number of cores nor on the caller's threads, which
    affect even the matrix product of a single chunk.
    """
    for _ in _results(work, size, columns):
        pass


def sum_by_columns(work: Callable[[slice], T], total: T, size: int, columns: int) -> T:
    """Adds to `total` what `work` returns for column ranges, in their order; few results are in memory at a time."""
    for part in _results(work, size, columns):
        total += part  # type: ignore[operator]
    return total


def _results(work: Callable[[slice], T], size: int, columns: int) -> Iterator[T]:
    chunks = [slice(start, min(start + columns, size)) for start in range(0, size, columns)]
    with _libraries.limit(limits=1, user_api="blas"):
        yield from _pool(cores()).map(work, chunks)


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """A kept pool of single-core threads: each new thread would keep memory of its own."""
    return ThreadPoolExecutor(count, initializer=use_one_core)


def use_one_core() -> None:
    """Limits this thread to one core. PyTorch reads the number at a thread's first work; others may have changed it."""
    torch.set_num_threads(1)
    torch.get_num_threads()
