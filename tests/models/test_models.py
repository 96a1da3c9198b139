"""A model by its name, or a user's own class."""

import sys
from types import ModuleType

import pytest
import torch
from lightning import LightningModule
from torch import nn

from fedbench import models
from fedbench.config import Config
from fedbench.errors import ConfigError
from tests.models.making import RGB, built, meta, refused


@pytest.mark.parametrize("name", models.MODELS.names())
def test_one_seed_gives_one_start_model(name):
    first, second, other = (nn.utils.parameters_to_vector(built(s, name).parameters()) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("shape", "kind"), [((1, 8, 8), "Mlp"), ((1, 16, 16), "AvgCnn"), (RGB, "AvgCnn")])
def test_auto(shape, kind):
    assert type(meta("auto", shape)).__name__ == kind


class Own(LightningModule):
    def __init__(self, classes: int, width: int = 3) -> None:
        super().__init__()
        self.classes, self.width = classes, width


class Bare(LightningModule):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = 1 // depth


class Around(LightningModule):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


class Anything(LightningModule):
    def __init__(self, **options: int) -> None:
        super().__init__()
        self.options = options


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mine")
    module.Own, module.Bare, module.Anything, module.other = Own, Bare, Anything, dict
    module.Around, module.Plain = Around, nn.Linear
    foreign = type("LightningModule", (nn.Module,), {"__module__": "pytorch_lightning.core.module"})
    module.Foreign = type("Foreign", (foreign,), {})
    monkeypatch.setitem(sys.modules, "mine", module)


def test_a_class_gets_shape_and_classes_where_its_constructor_names_them():
    assert (own := models.build("mine:Own", RGB, 7, width=4)).classes == 7
    assert own.width == 4
    assert models.build("mine:Bare", RGB, 7, depth=1).depth == 1
    assert models.build("mine:Anything", RGB, 7, a=1).options == {"a": 1}


def test_mistakes():
    assert "unknown model 'resnet20': did you mean resnet" in refused("resnet20")
    assert "unknown key model.hiden: mlp takes no such argument; did you mean hidden?" in refused("mlp", hiden=3)
    assert "it has no options" in refused("avgcnn", hidden=3)
    assert "unknown key model.widht" in refused("mine:Own", widht=3)
    assert (
        "model mine:Bare needs model.depth: its constructor has no default for it; arguments called input_shape and"
        in (refused("mine:Bare"))
    )
    by_class = "the class of an object is named by model.net.class_path, its arguments by model.net.init_args"
    assert (
        refused("mine:Around")
        == f"model mine:Around needs model.net: its constructor has no default for it; {by_class}"
    )
    assert refused("mine:Around", net="mine:Own") == (
        f"model.net = 'mine:Own': mine:Around takes a Module there; {by_class}"
    )
    assert "its constructor failed (ZeroDivisionError" in refused("mine:Bare", depth=0)
    assert "module mine has no Owm; did you mean Own?" in refused("mine:Owm")
    assert "module nowhere cannot be imported" in refused("nowhere:Net")
    assert "not a subclass of lightning.LightningModule" in refused("mine:other")
    assert "LightningModule: derive it from that, with a training_step(" in refused("mine:Plain")
    assert "; write lightning.pytorch for pytorch_lightning in its imports" in refused("mine:Foreign")
    assert "model.hidden = 0: must be a positive width" in refused("mlp", hidden=0)
    assert "model.hidden = 'wide'" in refused("mlp", hidden="wide")
    assert "model.stem = 'big': imagenet or cifar" in refused("resnet18", stem="big")
    assert "needs images of 16x16 or more, these are 8x8" in refused("avgcnn", (1, 8, 8))
    assert "needs images of 63x63 or more, these are 32x64" in refused("alexnet", (3, 32, 64))
    assert "whose side is a multiple of 16, these are 40x40" in refused("vit", (3, 40, 40))
    assert "square images whose side is a multiple of 16, these are 32x48" in refused("vit", (3, 32, 48))
    assert "model.size = 'huge': tiny or small or base" in refused("vit", size="huge")
    assert "model.norm = 'layer': batch or none" in refused("alexnet", (3, 64, 64), norm="layer")
    assert "model.grey = True: repeat or native" in refused("resnet8", grey=True)
    assert "model.pretrained = 'yes': resnet18 takes true or false there" in refused("resnet18", pretrained="yes")


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("mlp", "hidden, norm"),
        ("resnet8", "grey, norm, stem"),
        ("resnet10", "grey, norm, stem"),
        ("resnet18", "grey, norm, pretrained, stem"),
        ("alexnet", "grey, norm, pretrained"),
        ("vit", "grey, pretrained, size"),
    ],
)
def test_unknown_options_are_answered_with_the_legal_ones(name, legal):
    for key in ("zzz", f"{legal[:3]}x"):
        told = refused(name, **{key: 1})
        assert f"unknown key model.{key}: {name} takes no such argument" in told
        assert told.endswith(f"known: {legal}")


def test_a_class_and_its_parts_as_lightning_cli_writes_them(monkeypatch):
    module = ModuleType("parts")
    module.Own, module.Head = Own, nn.Linear
    monkeypatch.setitem(sys.modules, "parts", module)
    head = {"class_path": "parts.Head", "init_args": {"in_features": 3, "out_features": 2}}
    asked = Config(model={"class_path": "parts.Own", "init_args": {"width": head}}).model
    assert (asked.name, asked.options) == ("parts:Own", {"width": head})
    built_head = models.build(asked.name, classes=4, **asked.options).width
    assert (type(built_head), built_head.out_features) == (nn.Linear, 2)
    worded = head["init_args"] | {"bias": "off"}
    with pytest.raises(ConfigError, match=r"init_args.bias = 'off': parts:Head takes true or false there"):
        models.build(asked.name, classes=4, width={"class_path": "parts.Head", "init_args": worded})
    with pytest.raises(ConfigError, match=r"a part of model parts:Own, 'parts:Hat': module parts has no Hat"):
        models.build(asked.name, classes=4, width={"class_path": "parts.Hat"})
