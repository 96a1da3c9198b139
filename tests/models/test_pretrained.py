"""Models that start from published weights."""

from pathlib import Path

import torch
import torchvision
from torch import nn

from tests.models.making import GREY, built, refused


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
    assert "model.pretrained: resnet18-f37072fd.pth cannot be downloaded (" in told
    assert f"put it into {tmp_path}/hub/checkpoints" in told


def test_what_no_weights_are_published_for():
    assert "for model.stem = cifar; set model.stem imagenet" in refused("resnet18", stem="cifar", pretrained=True)
    assert "for model.norm = batch; set model.norm none" in refused("alexnet", (3, 64, 64), pretrained=True)
    assert "for model.size = tiny; set model.size base" in refused("vit", size="tiny", pretrained=True)
    assert "a first layer of 1 channels" in refused("resnet18", GREY, grey="native", pretrained=True)
    assert "a first layer of 4 channels" in refused("vit", (4, 16, 16), size="base", pretrained=True)
    assert "unknown key model.pretrained: resnet8 takes no such argument" in refused("resnet8", pretrained=True)
