"""Memory that is freed stays with the process, or leaves it when it is told to."""

import platform
import subprocess
import sys

import pytest

ROUNDS, BLOCK = 20, 64 << 20
SCRIPT = f"""
import resource
import numpy as np
from fedbench.runtime.machine.allocator import keep_freed_memory
if __import__("sys").argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones({BLOCK}, np.uint8)
before = faults()
for _ in range({ROUNDS}):
    np.ones({BLOCK}, np.uint8)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator only")
def test_the_pages_of_a_block_are_used_again():
    def faults(what: str) -> int:
        return int(subprocess.run([sys.executable, "-c", SCRIPT, what], capture_output=True, text=True).stdout)

    assert faults("keep") < 100
    assert faults("leave") > 100  # else there is nothing to keep, and the test above says nothing


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator only")
def test_freed_memory_leaves_the_process():
    """Many small arrays, which the heap keeps because the last one is still there."""
    script = (
        "import numpy as np\n"
        "from fedbench.runtime.machine.allocator import release_freed_memory\n"
        "from fedbench.runtime.machine.allocator import resident_mb\n"
        "held = [np.ones(100_000, np.uint8) for _ in range(1000)]\n"
        "del held[:-1]\n"
        "before = resident_mb()\n"
        "release_freed_memory()\n"
        "print(before - resident_mb())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert float(told) > 50


def test_another_c_library_is_left_alone(monkeypatch):
    from fedbench.runtime.machine import allocator

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    allocator.keep_freed_memory()
    allocator.release_freed_memory()
