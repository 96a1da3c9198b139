"""The processor, as Linux describes it."""

import platform
from functools import cache
from pathlib import Path


@cache
def described_processor() -> dict[str, str]:
    """The entries of one core in /proc/cpuinfo; none where there is no such file."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text().strip().split("\n\n")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def name() -> str:
    """What its maker calls it."""
    return described_processor().get("model name") or platform.processor()


def has(instructions: str) -> bool | None:
    """Whether it has these instructions, such as avx512f or any with bf16; None where Linux does not say."""
    listed = described_processor().get("flags") or described_processor().get("Features")
    return None if listed is None else instructions in listed
