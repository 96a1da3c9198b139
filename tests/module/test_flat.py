"""A module whose parameters are views of one vector."""

import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench.errors import ConfigError
from fedbench.module.flat import FlatModule


class Normed(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.head = nn.Linear(2, 2, bias=False)


@pytest.fixture
def flat() -> FlatModule:
    torch.manual_seed(0)
    return FlatModule(Normed(), torch.device("cpu"), "32-true", head=None)


def test_the_vector_and_the_parameters_are_the_same_memory(flat):
    flat.w.copy_(torch.arange(16.0))
    assert flat.module.head.weight.tolist() == [[12.0, 13.0], [14.0, 15.0]]
    flat.module.body[0].bias.data.fill_(-1)
    assert flat.w[6:8].tolist() == [-1.0, -1.0]


def test_weights_go_in_and_out_with_buffers_and_counters(flat):
    flat.module.body[1].running_mean.fill_(3)
    flat.module.body[1].num_batches_tracked.fill_(7)
    kept = flat.weights()
    assert (kept.buffers.tolist(), kept.counters.tolist()) == ([3, 3, 1, 1], [7])
    flat.load(flat.initial())
    assert flat.module.body[1].running_mean.tolist() == [0, 0]
    flat.load(kept)
    assert flat.weights().buffers.tolist() == [3, 3, 1, 1]
    assert int(flat.module.body[1].num_batches_tracked) == 7


def test_another_vector_is_shown_for_a_while(flat):
    own = flat.w.clone()
    with flat.pointing_to(torch.zeros_like(own)):
        assert not flat.module.head.weight.any()
    assert torch.equal(flat.w, own)
    assert flat.module.head.weight.data_ptr() == flat.w[12:].data_ptr()


def test_passes_may_leave_buffers_as_they_were(flat):
    with flat.kept_buffers():
        flat.module.body(torch.randn(4, 3))
    assert flat.module.body[1].running_mean.tolist() == [0, 0]
    assert int(flat.module.body[1].num_batches_tracked) == 0


def test_a_state_dict_of_plain_pytorch(flat):
    fresh = Normed()
    fresh.load_state_dict(flat.state_dict(flat.initial()))
    assert torch.equal(fresh.head.weight, flat.module.head.weight)


def test_a_parameter_in_other_memory_is_refused(flat):
    flat.check()
    flat.module.head.weight.data = flat.module.head.weight.data.clone()
    with pytest.raises(ConfigError, match=r"replaced the storage of parameter 'head\.weight'"):
        flat.check()


def of_type(**types: torch.dtype) -> FlatModule:
    """A module with tensors of other types, by name: body (frozen), head, buffer."""
    module = Normed()
    module.body.to(types.get("body", torch.float32)).requires_grad_(False)
    module.head.to(types.get("head", torch.float32))
    module.register_buffer("offset", torch.randn(3).to(types.get("buffer", torch.float32)))
    return FlatModule(module, torch.device("cpu"), "32-true", head=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_frozen_tensors_and_buffers_of_half_precision_keep_it_to_the_bit(dtype):
    flat = of_type(body=dtype, buffer=dtype)
    kept = {name: tensor.clone() for name, tensor in flat.module.state_dict().items()}
    assert (kept["body.0.weight"].dtype, kept["offset"].dtype) == (dtype, dtype)
    flat.load(flat.weights())
    saved = flat.state_dict(flat.initial())
    trained = flat.trained_state_dict(flat.initial())
    assert saved.keys() - trained.keys() == flat.frozen != frozenset()
    for name, tensor in kept.items():
        assert (saved[name].dtype, saved[name].tolist()) == (tensor.dtype, tensor.tolist())


def test_a_frozen_parameter_of_double_precision_keeps_it():
    module = Normed()
    module.body[0].double().requires_grad_(False)
    FlatModule(module, torch.device("cpu"), "32-true", head=None)
    assert module.body[0].weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("types", "line"),
    [
        ({"head": torch.float64}, "parameter 'head.weight' is float64, .*: choose --train.precision 64-true, or build"),
        ({"head": torch.bfloat16}, "parameter 'head.weight' is bfloat16, .*: build it with .float"),
        ({"head": torch.float16}, "parameter 'head.weight' is float16, .*--train.precision bf16-mixed computes in bf"),
        ({"buffer": torch.float64}, "buffer 'offset' is float64, .*: choose --train.precision 64-true, or build it"),
    ],
)
def test_what_would_be_turned_into_another_type_is_refused(types, line):
    with pytest.raises(ConfigError, match=line):
        of_type(**types)


def test_a_tensor_without_numbers_is_refused():
    module = Normed()
    module.head = nn.Linear(2, 2, bias=False, device="meta")
    with pytest.raises(ConfigError, match=r"'head\.weight' is on the device meta and has no numbers: create it on the"):
        FlatModule(module, torch.device("cpu"), "32-true", head=None)


def test_in_double_precision_everything_is_double():
    module = Normed().bfloat16()
    module.body.requires_grad_(False)
    FlatModule(module, torch.device("cpu"), "64-true", head=None)
    assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float64, torch.int64}


class Extra(nn.Module):
    """Keeps a value of Python in its state."""

    def get_extra_state(self):
        return {"factor": 2.0}

    def set_extra_state(self, state):
        pass


def test_a_state_that_is_no_tensor_is_refused():
    module = Normed()
    module.extra = Extra()
    with pytest.raises(ConfigError, match=r"state 'extra\._extra_state' is a dict, which cannot be averaged"):
        FlatModule(module, torch.device("cpu"), "32-true", None)


def test_a_quantised_module_is_refused():
    module = Normed()
    module.scales = nn.Module()
    module.scales.register_buffer("table", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    with pytest.raises(ConfigError, match=r"state 'scales\.table' is a quantised tensor, which cannot be averaged"):
        FlatModule(module, torch.device("cpu"), "32-true", None)


class Counting(Normed):
    """Buffers that PyTorch leaves out of state dicts: a mean, a table of constants, a number and a tied one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([float("nan"), 1.0]), persistent=False)
        self.register_buffer("table", torch.tensor([0.0, 0.1, float("inf")]), persistent=False)
        self.register_buffer("seen", torch.tensor(10**6), persistent=False)
        self.register_buffer("running", self.body[1].running_mean, persistent=False)


def counting() -> FlatModule:
    torch.manual_seed(0)
    return FlatModule(Counting(), torch.device("cpu"), "32-true", head=None)


def test_a_buffer_outside_of_state_dicts_is_in_them_once_it_differs_from_the_start():
    flat, plain = counting(), Counting().state_dict().keys()
    assert flat.unsaved == ["mean", "table", "seen"]
    assert flat.state_dict(flat.initial()).keys() == plain
    flat.module.mean.copy_(torch.tensor([float("nan"), 2.0]))
    flat.module.table.mul_(1 + 1e-6)  # as a mean of equal numbers may be
    flat.module.running.fill_(3)
    assert flat.state_dict(flat.weights()).keys() == plain | {"mean"}
    flat.module.seen.add_(1)
    saved = flat.state_dict(flat.weights())
    assert saved.keys() == plain | {"mean", "seen"}
    other = counting()
    other.load_state_dict(saved)
    assert (float(other.module.mean[1]), int(other.module.seen)) == (2, 10**6 + 1)
    assert other.module.body[1].running_mean.tolist() == [3, 3]
    other.load_state_dict({name: saved[name] for name in plain})
    assert (float(other.module.mean[1]), int(other.module.seen)) == (1, 10**6)


def test_such_a_buffer_of_a_compiled_part_keeps_the_name_that_it_has_for_its_author():
    module = Normed()
    module.body[0].register_buffer("mean", torch.zeros(3), persistent=False)
    module.body = torch.compile(module.body)
    flat = FlatModule(module, torch.device("cpu"), "32-true", head=None)
    assert flat.unsaved == ["body._orig_mod.0.mean"]
    flat.module.body[0].mean.fill_(1)
    saved = flat.state_dict(flat.weights())
    assert saved["body._orig_mod.0.mean"].tolist() == [1, 1, 1]
