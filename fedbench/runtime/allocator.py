"""What the C library does with memory that is freed."""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 1 << 28
"""Bytes: blocks up to this size, and so much of freed memory at the end of the heap, stay with the process."""


def keep_freed_memory() -> None:
    """Keep what a step frees for the next one, where glibc would give large blocks back to the system.

    Getting fresh pages for the same activations and gradients again takes a tenth of a step of resnet18 on a CPU. Other
    C libraries are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(M_MMAP_THRESHOLD, KEPT)
    mallopt(M_TRIM_THRESHOLD, KEPT)


def release_freed_memory() -> None:
    """Give freed memory back to the system now: dealing to many clients leaves more of it than a run ever needs."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not glibc
        return
