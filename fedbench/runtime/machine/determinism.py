"""Chooses kernels that give the same bits on a GPU in every run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def deterministic_kernels(device: torch.device) -> Iterator[None]:
    """Operations on a GPU whose result does not vary from run to run, where there are such; the rest warns.

    Restores the process's settings.
    """
    if device.type == "cpu":
        yield
        return
    cudnn: Any = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        memory.fill_uninitialized_memory,
        cudnn.deterministic,
        cudnn.benchmark,
    )
    kept = os.environ.get(WORKSPACE)
    os.environ.setdefault(WORKSPACE, ":4096:8")  # is read when the process first multiplies matrices
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory, cudnn.deterministic, cudnn.benchmark = False, True, False
    try:
        yield
    finally:
        enabled, warn_only, memory.fill_uninitialized_memory, cudnn.deterministic, cudnn.benchmark = before
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        if kept is None:
            del os.environ[WORKSPACE]
