"""Copies of the model inside the model: what is one, and that it counts as buffers."""

from copy import deepcopy

import pytest
import torch
from lightning import LightningModule
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fedbench.errors import ConfigError
from fedbench.module.copies import copies_in
from fedbench.module.flat import FlatModule


class Net(LightningModule):
    """6 -> 5 -> 3 in a body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.head = nn.Linear(5, 3)


def averaged(compiled: bool = False) -> Net:
    module = Net()
    if compiled:
        module.body = torch.compile(module.body, backend="eager")
    module.slow = AveragedModel(module.body, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    module.slow_head = AveragedModel(module.head)
    return module


def teacher() -> Net:
    module = Net()
    module.slow, module.slow_head = (deepcopy(part).requires_grad_(False) for part in (module.body, module.head))
    return module


def flat(module: LightningModule) -> FlatModule:
    return FlatModule(module, torch.device("cpu"), "32-true", head=None)


@pytest.mark.parametrize(
    ("module", "copies"),
    [
        (averaged(), {"slow.module": "body", "slow_head.module": "head"}),
        (averaged(compiled=True), {"slow.module": "body", "slow_head.module": "head"}),
        (teacher(), {"slow": "body", "slow_head": "head"}),
    ],
)
def test_averages_and_frozen_copies_are_copies(module, copies):
    assert copies_in(module) == copies


def test_the_original_of_an_average_is_the_one_with_its_numbers():
    module = two_heads()
    nn.init.normal_(module.second.weight)
    module.slow = AveragedModel(module.second)
    assert copies_in(module) == {"slow.module": "second"}
    nn.init.normal_(module.slow.module.weight)
    assert copies_in(module) == {"slow.module": "head"}, "the first of its shape where none has"


def test_a_frozen_copy_in_half_precision_is_a_model_of_its_own():
    module = Net()
    module.slow = deepcopy(module.body).bfloat16().requires_grad_(False)
    assert copies_in(module) == {}


def test_a_copy_of_the_whole():
    module = Net()
    module.slow = deepcopy(module).requires_grad_(False)
    assert copies_in(module) == {"slow": ""}


def frozen_norm() -> Net:
    module = Net()
    module.frozen = nn.BatchNorm1d(5).requires_grad_(False)
    return module


def frozen_other() -> Net:
    module = Net()
    module.frozen = nn.Linear(5, 3).requires_grad_(False)
    return module


def two_heads() -> Net:
    module = Net()
    module.second = deepcopy(module.head)
    return module


def transformer() -> Net:
    module = Net()
    module.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 4), 2)
    return module


@pytest.mark.parametrize("build", [Net, frozen_norm, frozen_other, two_heads, transformer])
def test_layers_of_their_own_are_none(build):
    assert copies_in(build()) == {}


@pytest.mark.parametrize("build", [averaged, teacher])
def test_they_are_buffers_with_the_roles_of_their_originals(build):
    module = flat(build())
    copied = [slot for slot in module.layout.buffers if slot.name.startswith("slow")]
    assert module.layout.size == Net().body[0].weight.numel() + 5 + 10 + 18
    assert [slot.name for slot in module.layout.params] == [name for name, _ in Net().named_parameters()]
    assert sum(slot.size for slot in copied) == module.layout.size + 10, "and running statistics"
    assert {slot.name.split(".")[0] for slot in copied if slot.head} == {"slow_head"}
    assert not any(slot.tied for slot in copied)
    norms = [name for name, part in module.module.named_modules() if isinstance(part, nn.BatchNorm1d)]
    assert {slot.name.rpartition(".")[0] for slot in module.layout.buffers if slot.norm} == set(norms)


@pytest.mark.parametrize("build", [averaged, teacher])
def test_they_go_in_and_out_with_the_buffers(build):
    module = flat(build())
    (own,) = [p for n, p in module.module.named_parameters() if n.startswith("slow_head") and n.endswith("weight")]
    own.data.fill_(4)
    kept = module.weights()
    module.check()
    module.load(module.initial())
    assert not bool((own == 4).any())
    module.load(kept)
    assert bool((own == 4).all())


def test_a_name_that_is_given_is_one_whatever_its_numbers():
    module = teacher()
    copies = copies_in(module)
    with torch.no_grad():
        module.slow[0].weight.add_(1)
    assert FlatModule(module, torch.device("cpu"), "32-true", None, copies=copies).copies == copies


def test_a_copy_of_double_precision_is_refused_as_a_buffer():
    module = averaged()
    module.slow.double()
    with pytest.raises(ConfigError, match=r"buffer 'slow\.module\..*' is float64"):
        flat(module)


def test_what_peft_keeps_beside_its_trained_copy_is_no_copy():
    class ModulesToSaveWrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.original_module = nn.Linear(5, 3).requires_grad_(False)
            self.modules_to_save = nn.ModuleDict({"default": deepcopy(self.original_module).requires_grad_(True)})

    module = Net()
    module.head = ModulesToSaveWrapper()
    assert copies_in(module) == {}
    assert flat(module).layout.size == sum(p.numel() for p in module.body.parameters()) + 18
