"""Every random draw comes from a stream named by what it is for: (seed, client, round, purpose)."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

Key = tuple[int | str, ...]


def derive(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key and on nothing else."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A CPU generator of its own for this key."""
    return torch.Generator().manual_seed(derive(*key))


def numpy_generator(*key: int | str) -> np.random.Generator:
    """The same for NumPy."""
    return np.random.Generator(np.random.PCG64(derive(*key)))


def seed_everything(*key: int | str) -> None:
    """Set the global streams of torch, NumPy and random, for Dropout and the like in users' modules."""
    seed = derive(*key)
    seed_torch(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def seed_torch(seed: int) -> None:
    """torch.manual_seed, which formats a stack trace at every call where CUDA is not in use."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def preserved_streams() -> Iterator[None]:
    """Leave the caller's global streams as they were."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with preserved_torch_stream():
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


@contextmanager
def preserved_torch_stream() -> Iterator[None]:
    """The same for torch alone, in microseconds; fork_rng and NumPy's state take a tenth of a millisecond."""
    torch_state = torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
