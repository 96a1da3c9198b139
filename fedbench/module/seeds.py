"""Random streams, named by their purpose: (seed, client, round, purpose)."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

Key = tuple[int | str, ...]
TorchStates = tuple[torch.Tensor, list[torch.Tensor]]


def derive(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key only."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A separate CPU generator for this key."""
    return torch.Generator().manual_seed(derive(*key))


def numpy_generator(*key: int | str) -> np.random.Generator:
    """The same for NumPy."""
    return np.random.Generator(np.random.PCG64(derive(*key)))


def seed_everything(*key: int | str) -> None:
    """Seeds the global streams of torch, NumPy and random, for Dropout and the like in users' modules."""
    seed = derive(*key)
    seed_torch(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def seed_torch(seed: int) -> None:
    """Like torch.manual_seed, which formats a stack trace on every call if CUDA is not in use."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def preserved_streams() -> Iterator[None]:
    """Restores the caller's global streams at the end."""
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
    kept = torch_states()
    try:
        yield
    finally:
        _restore_torch_states(*kept)


class TorchStream:
    """torch's global streams for one of several alternating users: each continues where it left off."""

    def __init__(self, *key: int | str) -> None:
        self._seed = derive(*key)
        self._left: TorchStates | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        with preserved_torch_stream():
            if self._left is None:
                seed_torch(self._seed)
            else:
                _restore_torch_states(*self._left)
            yield
            self._left = torch_states()


def torch_states() -> TorchStates:
    """The states of torch's global streams, on the CPU and on every GPU in use."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _restore_torch_states(cpu: torch.Tensor, cuda: list[torch.Tensor]) -> None:
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
