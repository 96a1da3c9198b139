"""What Linux says of the processor, and what is said where it says nothing."""

import platform
from pathlib import Path

import pytest

from fedbench import processor

TWO_CORES = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC: a test
flags\t\t: fpu avx2 avx512_bf16

processor\t: 1
vendor_id\t: another
"""
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd i8mm bf16\n"


@pytest.fixture
def cpuinfo(monkeypatch):
    def say(text: str | None) -> None:
        def read(path: Path) -> str:
            if text is None:
                raise FileNotFoundError(path)
            return text

        monkeypatch.setattr(processor.Path, "read_text", read)
        processor.described_processor.cache_clear()

    yield say
    monkeypatch.undo()
    processor.described_processor.cache_clear()


def test_the_first_core_speaks_for_all(cpuinfo):
    cpuinfo(TWO_CORES)
    assert processor.name() == "AMD EPYC: a test"
    assert [processor.has(flag) for flag in ("bf16", "avx2", "avx512f")] == [True, True, False]


def test_other_kinds_of_processor(cpuinfo):
    cpuinfo(ARM)
    assert processor.has("bf16") is True
    assert processor.has("avx2") is False
    assert processor.name() == platform.processor()


@pytest.mark.parametrize("text", [None, ""])
def test_without_a_word_of_linux(cpuinfo, text):
    cpuinfo(text)
    assert processor.has("bf16") is None
    assert processor.name() == platform.processor()
