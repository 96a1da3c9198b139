"""A host's part of a GPU's memory, and what happens when it is full."""

import pickle

import pytest
import torch

from fedbench.errors import RunError
from fedbench.methods.fedavg import FedAvg
from fedbench.runtime.machine.gpu import CONTEXT_MB, GpuFullError, limit_memory, limit_of, peak_mb, reporting_full_gpu
from tests.runtime.rounds import play, small

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24 GiB."


class Hungry(FedAvg):
    """FedAvg for which the GPU is too small."""

    def train(self, client, received):
        raise torch.OutOfMemoryError(FULL)


def test_a_share_leaves_room_for_what_cuda_takes_itself():
    assert limit_of(1.0, 24_000) == limit_of(2.0, 24_000) == 1.0
    assert limit_of(0.25, 24_000) == 0.25 - CONTEXT_MB / 24_000 == 0.225
    assert limit_of(0.125, 4000) == 0.0625, "half of a share that hardly holds CUDA"


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError(FULL), RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be")]
)
def test_a_full_gpu_is_told_from_other_errors_even_behind_one(error):
    outer = RuntimeError("a step fails")
    outer.__cause__ = error
    for found in (error, outer):
        full = GpuFullError.behind(found, "client 3: ")
        assert str(full).startswith("client 3: the memory of the GPU is full (CUDA ")
        assert "24 GiB" not in str(full)
        sent = pickle.loads(pickle.dumps(full))
        assert GpuFullError.behind(sent) is sent
    assert GpuFullError.behind(RuntimeError("size mismatch")) is None
    with pytest.raises(GpuFullError), reporting_full_gpu():
        raise outer
    with pytest.raises(KeyError), reporting_full_gpu():
        raise KeyError("other")


def test_a_client_for_which_the_gpu_is_too_small_ends_the_run_instead_of_being_left_out(tmp_path):
    with pytest.raises(RunError, match=r"client 0: the memory of the GPU is full .* or give each host more of a GPU"):
        play(small("tests.runtime.machine.test_gpu:Hungry"), tmp_path)


def test_on_a_cpu_there_is_nothing_to_limit_or_to_measure():
    limit_memory(torch.device("cpu"), 0.25)
    assert peak_mb(torch.device("cpu")) == 0.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
def test_a_process_cannot_take_more_than_its_share():
    device = torch.device("cuda")
    try:
        limit_memory(device, 0.25)
        before = peak_mb(device)  # other tests of this process may hold memory
        total = torch.cuda.get_device_properties(0).total_memory
        with pytest.raises(GpuFullError), reporting_full_gpu():
            torch.empty(int(0.3 * total), dtype=torch.uint8, device=device)
        held = torch.empty(2**28, dtype=torch.uint8, device=device)
        assert before + 256 <= peak_mb(device) < before + 300
        del held
    finally:
        limit_memory(device, 1.0)
