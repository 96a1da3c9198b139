"""Networks are built again from what is written down of them."""

import pytest
import torch
from lightning import LightningModule

from fedbench import models
from fedbench.errors import ConfigError
from fedbench.models.recipe import calls_after, make_recipe
from fedbench.user_code.given_model import name_of_instance
from tests.runtime.networks import Parted

PART = {"class_path": "torch.nn.Linear", "init_args": {"in_features": 3, "out_features": 2}}


class Holder(LightningModule):
    def __init__(self, classes: int, part: object, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.part, self.classes, self.names = part, classes, names

    def configure_model(self) -> None:
        pass


def built(name, **options):
    found, known = make_recipe(name, (1, 8, 8), 5, options), dict[str, object]()
    exec("\n".join([*found.imports, f"model = {found.build}"]), known)
    return found, known["model"]


def test_a_built_in_network_has_the_same_tensors():
    found, module = built("mlp", hidden=[16])
    assert found.build == "Mlp(input_shape=(1, 8, 8), classes=5, hidden=[16])"
    plain = models.build("mlp", (1, 8, 8), 5, hidden=[16])
    assert [tensor.shape for tensor in module.state_dict().values()] == [
        tensor.shape for tensor in plain.state_dict().values()
    ]


def test_a_class_of_ones_own_gets_the_objects_among_its_arguments():
    found, module = built("tests.models.test_recipe:Holder", part=PART, names=("a", "b"))
    assert (module.classes, module.names) == (5, ("a", "b"))
    assert isinstance(module.part, torch.nn.Linear)
    assert calls_after(module) == ("configure_model()",)
    assert found.imports == ("from tests.models.test_recipe import Holder", "from torch.nn import Linear")


def test_what_cannot_be_written_down_is_said():
    for name in (name_of_instance(Parted()), "tests.models.test_recipe:alias"):
        with pytest.raises(ConfigError, match="cannot be imported elsewhere"):
            make_recipe(name, (1, 8, 8), 5, {})
    with pytest.raises(ConfigError, match=r"argument <object .* cannot be written down"):
        make_recipe("tests.models.test_recipe:Holder", (1, 8, 8), 5, {"part": object()})


def alias_of(kind):
    class Inner(kind):
        pass

    return Inner


alias = alias_of(Parted)
