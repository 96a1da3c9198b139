"""Work on long vectors, column by column, side by side on all cores, to the same bits on any number of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from threadpoolctl import ThreadpoolController

from fedbench.processor import cores

# Not powers of two: rows so far apart fall into the same few lines of a cache, and a product takes up to twice as long.
COLUMNS = 64_000

GATHERED = 22_000
"""Columns of a chunk where all clients' rows are held at once: 9 MB for 100 clients. Eight to a byte."""

PIECE = 2_000
"""Columns of a part of such a chunk that stays in a core's cache from one operation to the next."""

PRODUCTS = 8_000
"""Columns of a chunk that is read, multiplied and written row by row: narrower ones cost more calls than they save."""


_libraries = ThreadpoolController()
"""Those that NumPy and SciPy compute with, which would start threads of their own in every one of ours."""


def by_columns(work: Callable[[slice], None], size: int, columns: int = COLUMNS) -> None:
    """Run `work` on column ranges side by side, each on one core.

    Chunks have a fixed size, so bits depend neither on the number of cores nor on the caller's threads, which matter to
    a matrix product even of a single chunk.
    """
    chunks = [slice(start, min(start + columns, size)) for start in range(0, size, columns)]
    with _libraries.limit(limits=1, user_api="blas"):
        list(_pool(cores()).map(work, chunks))


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """Threads of one core each, kept: every new thread would keep memory of its own."""
    return ThreadPoolExecutor(count, initializer=use_one_core)


def use_one_core() -> None:
    """For this thread. PyTorch reads the number at a thread's first work, when another thread may have changed it."""
    torch.set_num_threads(1)
    torch.get_num_threads()
