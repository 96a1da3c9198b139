"""Networks: layers, parameter counts and initial weights as published; a user's own class."""

import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torchvision
from lightning import LightningModule
from torch import nn

from fedbench import models
from fedbench.errors import ConfigError

RGB, GREY = (3, 32, 32), (1, 28, 28)
SMALLEST: dict[str, dict] = {
    "alexnet": {"input_shape": (3, 63, 63)},
    "vit": {"input_shape": (3, 32, 32), "size": "tiny"},
}
"""What a model needs to be quick in a test; others take 32x32."""


def meta(name: str, shape: tuple[int, int, int] = RGB, classes: int = 10, **options) -> LightningModule:
    """Without memory for the weights."""
    with torch.device("meta"):
        return models.build(name, shape, classes, **options)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def built(seed: int, name: str, **options) -> LightningModule:
    torch.manual_seed(seed)
    return models.build(name, **SMALLEST.get(name, {}) | options)


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


@pytest.mark.parametrize(("norm", "parameters", "norms"), [("batch", 57_063_498, 18_688), ("none", 57_044_810, 0)])
def test_alexnet(norm, parameters, norms):
    module = meta("alexnet", (3, 256, 256), norm=norm).eval()
    layers = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert count(module) == parameters
    assert sum(map(count, layers)) == sum(b.numel() for b in module.buffers() if b.is_floating_point()) == norms
    assert len(layers) == (7 if norm == "batch" else 0)
    assert count(module.head) == 40_970
    assert module(torch.zeros(2, 3, 256, 256, device="meta")).shape == (2, 10)


def test_alexnet_layer_by_layer():
    module, seen = meta("alexnet", (3, 256, 256)).eval(), {}
    for name, layer in module.body.named_children():
        layer.register_forward_hook(lambda _, __, out, name=name: seen.update({name: tuple(out.shape[1:])}))
    module(torch.zeros(1, 3, 256, 256, device="meta"))
    sides = {name: shape for name, shape in seen.items() if name.startswith(("conv", "pool"))}
    assert sides == {
        "conv1": (64, 63, 63),
        "pool1": (64, 31, 31),
        "conv2": (192, 31, 31),
        "pool2": (192, 15, 15),
        "conv3": (384, 15, 15),
        "conv4": (256, 15, 15),
        "conv5": (256, 15, 15),
        "pool5": (256, 7, 7),
    }
    assert (seen["flatten"], seen["fc1"], seen["fc2"]) == ((9216,), (4096,), (4096,))
    sizes = {name: count(layer) for name, layer in module.body.named_children() if count(layer)}
    assert list(sizes.items()) == [
        ("conv1", 23_296),
        ("bn1", 128),
        ("conv2", 307_392),
        ("bn2", 384),
        ("conv3", 663_936),
        ("bn3", 768),
        ("conv4", 884_992),
        ("bn4", 512),
        ("conv5", 590_080),
        ("bn5", 512),
        ("fc1", 37_752_832),
        ("bn_fc1", 8_192),
        ("fc2", 16_781_312),
        ("bn_fc2", 8_192),
    ]


def test_alexnet_without_norm_is_torchvisions_without_dropout():
    ours, theirs = meta("alexnet", (3, 64, 64), norm="none"), torchvision.models.alexnet
    with torch.device("meta"):
        shapes = [p.shape for p in theirs(num_classes=10).parameters()]
    assert [p.shape for p in ours.parameters()] == shapes


@pytest.mark.parametrize(
    ("size", "side", "parameters", "width"),
    [
        ("tiny", 224, 5_526_346, 192),
        ("tiny", 256, 5_537_866, 192),
        ("small", 224, 21_669_514, 384),
        ("small", 256, 21_692_554, 384),
        ("base", 224, 85_806_346, 768),
        ("base", 256, 85_852_426, 768),
    ],
)
def test_vit(size, side, parameters, width):
    module = meta("vit", (3, side, side), size=size).eval()
    assert count(module) == parameters
    assert count(module.head) == (width + 1) * 10
    assert module(torch.zeros(2, 3, side, side, device="meta")).shape == (2, 10)
    assert not any(m.p for m in module.modules() if isinstance(m, nn.Dropout))


def test_vit_is_small_unless_asked():
    assert count(meta("vit", (3, 224, 224))) == 21_669_514


def test_vit_starts_as_torchvisions_with_a_head_that_lets_gradients_pass():
    module = built(0, "vit")
    assert module.head.weight.std() > 0
    assert module.body.transformer.conv_proj.bias.abs().sum() == 0
    native = built(0, "vit", input_shape=(1, 32, 32), grey="native").body.transformer.conv_proj.weight
    assert native.shape == (192, 1, 16, 16)
    assert native.std().item() == pytest.approx(1 / 16, rel=0.1)


# -- structure ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", models.MODELS)
def test_the_head_comes_last_and_features_are_what_it_sees(name):
    module = built(0, name).eval()
    x = torch.randn(2, *SMALLEST.get(name, {}).get("input_shape", RGB))
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


@pytest.mark.parametrize(
    ("name", "options", "repeated", "native"),
    [
        ("alexnet", {}, 57_063_498, 57_048_010),
        ("vit", {"size": "tiny"}, 5_526_346, 5_428_042),
        ("resnet18", {}, 11_181_642, 11_175_370),
    ],
)
def test_one_channel_enters_three_times_or_natively(name, options, repeated, native):
    assert count(meta(name, (1, 224, 224), **options)) == repeated
    assert count(meta(name, (1, 224, 224), grey="native", **options)) == native


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (2, 3, 7), {}),
        ("avgcnn", (1, 16, 33), {}),
        ("resnet8", (3, 1, 1), {}),
        ("resnet18", (3, 37, 50), {"stem": "cifar"}),
        ("resnet10", (4, 65, 20), {}),
        ("alexnet", (1, 63, 100), {}),
        ("alexnet", (5, 64, 63), {"norm": "none"}),
        ("vit", (1, 16, 16), {"size": "tiny"}),
        ("vit", (4, 48, 48), {"size": "tiny"}),
    ],
)
def test_odd_sizes_and_channels(name, shape, options):
    assert meta(name, shape, 7, **options).eval()(torch.zeros(2, *shape, device="meta")).shape == (2, 7)


def test_avgcnn_does_not_resize():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        built(0, "avgcnn", input_shape=(1, 32, 32))(torch.zeros(2, *GREY))


@pytest.mark.parametrize(("shape", "kind"), [((1, 8, 8), "Mlp"), ((1, 16, 16), "AvgCnn"), (RGB, "AvgCnn")])
def test_auto(shape, kind):
    assert type(meta("auto", shape)).__name__ == kind


STEPS = [
    ("mlp", {}),
    ("avgcnn", {}),
    ("resnet8", {}),
    ("resnet10", {"stem": "cifar"}),
    ("resnet18", {}),
    ("resnet18", {"stem": "cifar"}),
    ("alexnet", {}),
    ("alexnet", {"norm": "none"}),
    ("vit", {}),
    ("vit", {"size": "small"}),
]


@pytest.mark.parametrize(("name", "options"), STEPS)
def test_every_model_takes_a_step_in_both_memory_formats(name, options):
    module = built(0, name, **options)
    shape = SMALLEST.get(name, {}).get("input_shape", RGB)
    x, y = torch.randn(4, *shape, generator=torch.Generator().manual_seed(5)), torch.tensor([0, 1, 2, 3])
    state = {key: value.clone() for key, value in module.state_dict().items()}
    after = []
    for layout in (torch.contiguous_format, torch.channels_last):
        module.load_state_dict(state)
        module.to(memory_format=layout).zero_grad()
        loss = nn.functional.cross_entropy(module(x.contiguous(memory_format=layout)), y)
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
        assert all(p.grad.abs().sum() > 0 for p in module.body.parameters() if p.ndim > 1), "all layers are trained"
        torch.optim.SGD(module.parameters(), lr=1e-3).step()
        after.append((loss.detach(), module.head.weight.detach().clone()))
    torch.testing.assert_close(after[0], after[1], rtol=1e-3, atol=1e-4)
    assert not torch.equal(after[0][1], state["head.weight"])


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


# -- published weights -------------------------------------------------------------------------------------------------


def publish(folder: Path, weights: torchvision.models.WeightsEnum, state: dict[str, torch.Tensor]) -> None:
    """Put a state dict where torch looks for a file that it has fetched."""
    path = folder / "hub" / "checkpoints" / weights.url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.save(state, path)


def numbered(module: nn.Module) -> dict[str, torch.Tensor]:
    """A state dict in which every tensor is full of a number of its own; one number on disk."""
    return {name: torch.tensor(float(n + 1)).expand(t.shape) for n, (name, t) in enumerate(module.state_dict().items())}


def test_resnet18_starts_from_published_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.manual_seed(8)
    theirs = torchvision.models.resnet18().eval()
    publish(tmp_path, torchvision.models.ResNet18_Weights.IMAGENET1K_V1, theirs.state_dict())
    ours = built(0, "resnet18", pretrained=True, classes=7).eval()
    theirs.fc = nn.Identity()
    x = torch.randn(2, 3, 40, 40)
    assert torch.equal(ours.body(x), theirs(x))
    assert torch.equal(ours.head.weight, built(0, "resnet18", classes=7).head.weight), "the head is the seed's"
    grey = built(0, "resnet18", input_shape=GREY, pretrained=True).eval()
    assert torch.equal(grey.body(x[:, :1]), theirs(x[:, :1].expand(-1, 3, -1, -1)))


def test_alexnet_starts_from_published_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with torch.device("meta"):
        theirs = torchvision.models.alexnet()
    state = numbered(theirs)
    publish(tmp_path, torchvision.models.AlexNet_Weights.IMAGENET1K_V1, state)
    ours = built(0, "alexnet", norm="none", pretrained=True)
    values = [p.flatten()[0].item() for p in ours.body.parameters()]
    assert values == [float(n + 1) for n in range(14)], "in torchvision's order"


def test_vit_starts_from_published_weights_at_any_size(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with torch.device("meta"):
        theirs = torchvision.models.vit_b_16()
    state = numbered(theirs)
    publish(tmp_path, torchvision.models.ViT_B_16_Weights.IMAGENET1K_V1, state)
    transformer = built(0, "vit", size="base", pretrained=True).body.transformer
    for name, tensor in transformer.state_dict().items():
        assert float(tensor.flatten()[-1]) == float(state[name].flatten()[0]), name
    assert transformer.encoder.pos_embedding.shape == (1, 5, 768), "four patches of 32x32 and the class token"


def test_weights_that_cannot_be_fetched_are_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    told = refused("resnet18", pretrained=True)
    assert "model.pretrained: resnet18-f37072fd.pth cannot be fetched (" in told
    assert f"put it into {tmp_path}/hub/checkpoints" in told


def test_what_no_weights_are_published_for():
    assert "for model.stem = cifar; set model.stem imagenet" in refused("resnet18", stem="cifar", pretrained=True)
    assert "for model.norm = batch; set model.norm none" in refused("alexnet", (3, 64, 64), pretrained=True)
    assert "for model.size = tiny; set model.size base" in refused("vit", size="tiny", pretrained=True)
    assert "a first layer of 1 channels" in refused("resnet18", GREY, grey="native", pretrained=True)
    assert "a first layer of 4 channels" in refused("vit", (4, 16, 16), size="base", pretrained=True)
    assert "unknown key model.pretrained: resnet8 takes no such argument" in refused("resnet8", pretrained=True)


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
    assert "needs images of 63x63 or more, these are 32x64" in refused("alexnet", (3, 32, 64))
    assert "whose side is a multiple of 16, these are 40x40" in refused("vit", (3, 40, 40))
    assert "square images whose side is a multiple of 16, these are 32x48" in refused("vit", (3, 32, 48))
    assert "model.size = 'huge': tiny or small or base" in refused("vit", size="huge")
    assert "model.norm = 'layer': batch or none" in refused("alexnet", (3, 64, 64), norm="layer")
    assert "model.grey = True: repeat or native" in refused("resnet8", grey=True)
    assert "model.pretrained = 'yes': True or False" in refused("resnet18", pretrained="yes")


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("mlp", "hidden"),
        ("resnet8", "grey, stem"),
        ("resnet10", "grey, stem"),
        ("resnet18", "grey, pretrained, stem"),
        ("alexnet", "grey, norm, pretrained"),
        ("vit", "grey, pretrained, size"),
    ],
)
def test_unknown_options_are_answered_with_the_legal_ones(name, legal):
    for key in ("zzz", f"{legal[:3]}x"):
        told = refused(name, **{key: 1})
        assert f"unknown key model.{key}: {name} takes no such argument" in told
        assert told.endswith(f"known: {legal}")
