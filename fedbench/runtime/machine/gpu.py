"""A host's part of a GPU's memory: its limit, what it has used, and the error when it is full."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedbench.errors import RunError, first_line, place_of, trace_of

CONTEXT_MB = 600.0
"""MB that CUDA itself takes in every process, beside PyTorch's allocator: 300 to 600 by GPU and driver."""
FULL = ("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Texts of other errors when CUDA finds no memory for something that PyTorch does not allocate."""


class GpuFullError(RunError):
    """The GPU, or a host's share of it, has no memory left for a run."""

    @classmethod
    def behind(cls, error: BaseException | None, who: str = "") -> "GpuFullError | None":
        """The error as a GpuFullError, if it or one of its causes says that a GPU is full. who: what was at work."""
        while error is not None:
            if isinstance(error, cls):
                return error
            if isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in FULL):
                reason = first_line(error).partition(" GPU ")[0]
                remedy = "lower train.width or train.batch_size, or give each host more of a GPU"
                text = f"{who}the memory of the GPU is full ({reason}): {remedy}"
                return cls(text, place_of(error), trace_of(error))
            error = getattr(error, "cause", None) or error.__cause__
        return None


@contextmanager
def reporting_full_gpu() -> Iterator[None]:
    """Raises GpuFullError in place of PyTorch's and CUDA's errors about missing memory."""
    try:
        yield
    except Exception as error:
        if full := GpuFullError.behind(error):
            raise full from error
        raise


def limit_memory(device: torch.device, share: float) -> None:
    """Limit this process to a share of a GPU's memory, so that it cannot take that of others; start measuring anew.

    share: from 1 on there is no limit.
    """
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(limit_of(share, memory_mb()))


def limit_of(share: float, total_mb: float) -> float:
    """The part of a GPU's memory for PyTorch's allocator; from every share CUDA takes its own part first."""
    return 1.0 if share >= 1 else max(share / 2, share - CONTEXT_MB / total_mb)


def memory_mb() -> float:
    """The memory of this process's GPU in MB; 0 without one."""
    return torch.cuda.get_device_properties(0).total_memory / 2**20 if torch.cuda.is_available() else 0.0


def free_bytes() -> int:
    """Free memory of the GPU, at most this process's limit."""
    free, total = torch.cuda.mem_get_info()
    return int(min(free, torch.cuda.get_per_process_memory_fraction() * total))


def peak_mb(device: torch.device) -> float:
    """The most memory that this process has taken of a GPU since `limit_memory`, with CUDA's part; 0 on a CPU."""
    if device.type != "cuda":
        return 0.0
    return CONTEXT_MB + torch.cuda.max_memory_reserved() / 2**20
