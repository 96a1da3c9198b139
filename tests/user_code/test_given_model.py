"""A model as an instance: it is copied as it is, and known by its class and state."""

import re
import subprocess
import sys

import cloudpickle
import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench import Config, ConfigError
from fedbench.import_string import import_string
from fedbench.models import build, check_options, load
from fedbench.models.mlp import Mlp
from fedbench.user_code import code_of, look_again
from fedbench.user_code.given_model import copies_instance


class Net(LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.scale = nn.Linear(4, width), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.body(x)


def net(seed: int = 0, width: int = 3) -> Net:
    torch.manual_seed(seed)
    return Net(width)


def name(model) -> str:
    return Config(model=model).model.name


def test_every_build_is_a_copy_of_the_instance_as_it_was():
    module = net()
    before = nn.utils.parameters_to_vector(module.parameters()).clone()
    found = name(module)
    with torch.no_grad():
        module.scale.zero_()
    one, two = (build(found, (4,), 3) for _ in range(2))
    assert type(one) is Net
    assert torch.equal(nn.utils.parameters_to_vector(one.parameters()), before)
    assert one.scale.data_ptr() != two.scale.data_ptr()
    assert copies_instance(load(found))
    assert not copies_instance(Net)


def test_the_name_follows_class_and_state():
    assert re.fullmatch(r"tests\.user_code\.test_given_model:Net@[0-9a-f]{8}", name(net()))
    assert name(net()) == name(net())
    assert name({"name": net(), "head": "body"}) == name(net())

    class Other(Net):
        pass

    other = net()
    other.__class__ = Other
    assert len({name(net()), name(net(seed=1)), name(net(width=2)), name(other), name(Net)}) == 5
    assert name(Mlp((4,), 3, hidden=2)).startswith("fedbench.models.mlp:Mlp@")
    assert name(Mlp((4,), 3, hidden=2)) != name(Mlp((4,), 3, hidden=2))  # drawn anew


def test_its_state_is_part_of_the_code():
    first, second = name(net()), name(net(seed=1))
    look_again(first)
    assert code_of(first).fingerprint != code_of(second).fingerprint


def test_it_goes_where_the_configuration_goes():
    config = Config(model=net())
    sent = cloudpickle.dumps((config, net()))
    code = "import pickle, sys, torch; from fedbench.models import build; config, net = pickle.load(sys.stdin.buffer); "
    code += "print(torch.equal(build(config.model.name, (4,), 3).body.weight, net.body.weight))"
    assert subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True).stdout == b"True\n"


def test_it_takes_no_arguments():
    found = name(net())
    with pytest.raises(ConfigError, match=r"unknown key model\.width: .* takes no such argument; it has no options"):
        check_options(found, import_string(found, "model"), {"width": 3})


class Uncopied(Net):
    def __deepcopy__(self, memo: dict) -> None:
        raise TypeError("not me")


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (
            nn.Linear(2, 2),
            "model is a Linear, a plain torch.nn.Module: put it into a LightningModule with ",
        ),
        ({"name": nn.Linear(2, 2)}, "model is a Linear, a plain torch.nn.Module"),
        (Uncopied(2), "model Uncopied: the instance cannot be copied (TypeError: not me); pass the class, and its "),
        (3, "model = 3: must be a name, a class or a function, or a mapping"),
    ],
)
def test_what_is_no_model_is_refused(model, line):
    with pytest.raises(ConfigError, match=re.escape(line)):
        Config(model=model)
