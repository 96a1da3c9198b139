"""Processes of fedbench's own."""

import os

import torch

from fedbench.runtime.machine import process
from fedbench.runtime.machine.process import NVML_CHECK, prepare_process


def test_steps_of_adam_do_not_load_a_library_of_gpus(monkeypatch):
    monkeypatch.setattr(process, "keep_freed_memory", lambda: None)
    monkeypatch.setenv(NVML_CHECK, "1")
    assert torch.cuda._nvml_based_avail(), "as Lightning leaves it"
    prepare_process()
    assert NVML_CHECK not in os.environ
    assert not torch.cuda._nvml_based_avail()
