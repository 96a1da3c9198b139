"""Prepares a process of fedbench's own, which is nobody else's: a host of Ray or a trial of Tune."""

import os

from fedbench.runtime.machine.allocator import keep_freed_memory

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def prepare_process() -> None:
    """Keep freed memory, and make steps of torch.optim.Adam as fast without a GPU as they can be.

    Lightning sets the variable when it is imported. With it, where no GPU is, every step of Adam looks for NVIDIA's
    management library, which takes twice as long as the step itself.
    """
    keep_freed_memory()
    os.environ.pop(NVML_CHECK, None)
