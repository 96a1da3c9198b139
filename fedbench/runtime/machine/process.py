"""Prepares a process of fedbench's own, which is nobody else's: a host of Ray or a trial of Tune."""

import os

from fedbench.runtime.machine.allocator import keep_freed_memory

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def prepare_process() -> None:
    """Keep freed memory, and let steps of Adam ask for GPUs by the driver and not by its library.

    Lightning sets the variable when it is imported. With it every step of torch.optim.Adam loads the library anew where
    no GPU is, in twice the time of a step of a small model.
    """
    keep_freed_memory()
    os.environ.pop(NVML_CHECK, None)
