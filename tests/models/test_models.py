"""Networks: layers, parameter counts and initial weights as published; a user's own class."""

import sys
import warnings
from types import ModuleType

import pytest
import torch
import torchvision
from lightning import LightningModule
from torch import nn

from fedbench import models
from fedbench.errors import ConfigError

RGB, GREY = (3, 32, 32), (1, 28, 28)


def meta(name: str, shape: tuple[int, int, int] = RGB, classes: int = 10, **options) -> LightningModule:
    """Without memory for the weights."""
    with torch.device("meta"):
        return models.build(name, shape, classes, **options)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def built(seed: int, name: str, **options) -> LightningModule:
    torch.manual_seed(seed)
    return models.build(name, **options)


def refused(*arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        models.build(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- counts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "classes", "parameters"),
    [
        (RGB, 10, 878_538),
        (RGB, 100, 924_708),
        (GREY, 10, 582_026),
        (GREY, 62, 608_702),
        (GREY, 47, 601_007),
        (GREY, 11, 582_539),
        ((3, 64, 64), 200, 5_694_600),
        ((3, 84, 84), 100, 10_722_340),
    ],
)
def test_avgcnn(shape, classes, parameters):
    module = meta("avgcnn", shape, classes)
    assert count(module) == parameters
    assert count(module.head) == 513 * classes
    assert module(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


RESNETS = [
    ("resnet8", RGB, 10, 1_235_274, 1_227_594),
    ("resnet10", RGB, 10, 4_910_922, 4_903_242),
    ("resnet18", RGB, 10, 11_181_642, 11_173_962),
    ("resnet8", RGB, 100, 1_258_404, 1_250_724),
    ("resnet10", RGB, 100, 4_957_092, 4_949_412),
    ("resnet18", RGB, 100, 11_227_812, 11_220_132),
    ("resnet8", (3, 64, 64), 200, 1_284_104, 1_276_424),
    ("resnet10", (3, 64, 64), 200, 5_008_392, 5_000_712),
    ("resnet18", (3, 64, 64), 200, 11_279_112, 11_271_432),
    ("resnet8", GREY, 10, 1_229_002, 1_226_442),
    ("resnet10", GREY, 10, 4_904_650, 4_902_090),
    ("resnet18", GREY, 10, 11_175_370, 11_172_810),
    ("resnet18", GREY, 62, 11_202_046, 11_199_486),
    ("resnet18", GREY, 11, 11_175_883, 11_173_323),
]


@pytest.mark.parametrize(("name", "shape", "classes", "imagenet", "cifar"), RESNETS)
def test_resnets(name, shape, classes, imagenet, cifar):
    for stem, parameters in (("imagenet", imagenet), ("cifar", cifar)):
        module = meta(name, shape, classes, stem=stem, grey="native").eval()
        assert count(module) == parameters
        assert module(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


@pytest.mark.parametrize(
    ("name", "tensors", "norms", "width"),
    [("resnet8", 29, 9, 256), ("resnet10", 38, 12, 512), ("resnet18", 62, 20, 512)],
)
def test_resnet_parts(name, tensors, norms, width):
    module = meta(name)
    layers = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(list(module.parameters())) == tensors
    assert len(layers) == norms
    assert sum(map(count, layers)) == {9: 2688, 12: 5760, 20: 9600}[norms]
    assert sum(b.numel() for b in module.buffers() if b.is_floating_point()) == sum(map(count, layers))
    assert count(module.head) == (width + 1) * 10


@pytest.mark.parametrize(
    ("name", "stem", "side", "last"),
    [
        ("resnet18", "imagenet", 32, 1),
        ("resnet18", "cifar", 32, 4),
        ("resnet8", "imagenet", 64, 4),
        ("resnet8", "cifar", 84, 21),
        ("resnet10", "imagenet", 84, 3),
        ("resnet10", "cifar", 64, 8),
    ],
)
def test_last_map(name, stem, side, last):
    module = meta(name, (3, side, side), stem=stem).eval()
    sizes = []
    module.body.average.register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].shape[-1]))
    module(torch.zeros(1, 3, side, side, device="meta"))
    assert sizes == [last]


@pytest.mark.parametrize(
    ("options", "shape", "classes", "parameters"),
    [({}, GREY, 10, 199_210), ({"hidden": 64}, (1, 8, 8), 10, 4_810), ({"hidden": [5]}, (1, 2, 3), 3, 53)],
)
def test_mlp(options, shape, classes, parameters):
    module = meta("mlp", shape, classes, **options)
    assert count(module) == parameters
    assert module(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


def test_mlp_without_hidden_layers_is_linear():
    assert count(meta("mlp", (1, 8, 8), hidden=[])) == 650


# -- structure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", models.MODELS)
def test_the_head_comes_last_and_features_are_what_it_sees(name):
    module = built(0, name).eval()
    x = torch.randn(2, *RGB)
    assert isinstance(module.head, nn.Linear)
    assert [n for n, _ in module.named_parameters()][-2:] == ["head.weight", "head.bias"]
    assert torch.equal(module(x), module.head(module.body(x)))


def test_order_of_parameters():
    names = [name for name, _ in meta("avgcnn").named_parameters()]
    assert names[::2] == ["body.conv1.weight", "body.conv2.weight", "body.fc1.weight", "head.weight"]
    block = [name.split("1.0.", 1)[1] for name, _ in meta("resnet8").named_parameters() if "stage1.0" in name]
    assert block == ["conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"]


@pytest.mark.parametrize("name", models.MODELS)
def test_one_seed_gives_one_start_model(name):
    first, second, other = (nn.utils.parameters_to_vector(built(s, name).parameters()) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_resnet18_is_torchvisions():
    ours = built(3, "resnet18")
    torch.manual_seed(3)
    theirs = torchvision.models.resnet18(num_classes=10)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    x = torch.randn(4, *RGB)
    assert torch.equal(ours(x), theirs(x))


def test_grey_images_are_repeated_unless_native_is_asked_for():
    repeat = built(0, "resnet8", input_shape=GREY)
    assert count(repeat) == 1_235_274
    colour = built(0, "resnet8", input_shape=(3, 28, 28))
    x = torch.randn(2, *GREY)
    assert torch.equal(repeat(x), colour(x.repeat(1, 3, 1, 1)))
    assert count(meta("resnet8", GREY, grey="native")) == 1_229_002


def test_avgcnn_does_not_resize():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        built(0, "avgcnn", input_shape=(1, 32, 32))(torch.zeros(2, *GREY))


@pytest.mark.parametrize(("shape", "kind"), [((1, 8, 8), "Mlp"), ((1, 16, 16), "AvgCnn"), (RGB, "AvgCnn")])
def test_auto(shape, kind):
    assert type(meta("auto", shape)).__name__ == kind


def test_a_training_step_and_its_optimizer():
    module = built(0, "mlp", input_shape=(1, 2, 3), classes=3, hidden=5)
    batch = torch.randn(4, 1, 2, 3), torch.tensor([0, 1, 2, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # logging has nowhere to go without a trainer
        loss = module.training_step(batch, 0)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(module(batch[0]), batch[1]))
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.01


# -- a user's own class ------------------------------------------------------------------------------------------------


class Own(LightningModule):
    def __init__(self, classes: int, width: int = 3) -> None:
        super().__init__()
        self.classes, self.width = classes, width


class Bare(LightningModule):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = 1 // depth


class Anything(LightningModule):
    def __init__(self, **options: int) -> None:
        super().__init__()
        self.options = options


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mine")
    module.Own, module.Bare, module.Anything, module.other = Own, Bare, Anything, dict
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
    assert "model mine:Bare needs model.depth" in refused("mine:Bare")
    assert "its constructor failed (ZeroDivisionError" in refused("mine:Bare", depth=0)
    assert "module mine has no Owm; did you mean Own?" in refused("mine:Owm")
    assert "module nowhere cannot be imported" in refused("nowhere:Net")
    assert "not a subclass of lightning.LightningModule" in refused("mine:other")
    assert "model.hidden = 0: a width above 0" in refused("mlp", hidden=0)
    assert "model.hidden = 'wide'" in refused("mlp", hidden="wide")
    assert "model.stem = 'big': imagenet or cifar" in refused("resnet18", stem="big")
    assert "needs images of 16x16 or more, these are 8x8" in refused("avgcnn", (1, 8, 8))
