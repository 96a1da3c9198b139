"""Settings of PyTorch for the same bits on a GPU."""

import os

import torch

from fedbench.runtime.machine.determinism import WORKSPACE, deterministic_kernels


def settings() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark, os.environ.get(WORKSPACE)


def test_they_hold_within_the_block_only(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings()
    with deterministic_kernels(torch.device("cuda")):
        assert settings() == (True, True, False, ":4096:8")
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert settings() == before
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_on_a_processor_nothing_changes():
    before = settings()
    with deterministic_kernels(torch.device("cpu")):
        assert settings() == before


def test_a_workspace_of_the_users_stays(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with deterministic_kernels(torch.device("cuda")):
        assert os.environ[WORKSPACE] == ":16:8"
    assert os.environ[WORKSPACE] == ":16:8"
