"""Vision transformers in three sizes."""

from collections import OrderedDict
from functools import partial
from typing import Literal

from torch import nn
from torchvision.models import VisionTransformer, ViT_B_16_Weights
from torchvision.models.vision_transformer import interpolate_embeddings

from fedbench.errors import ConfigError
from fedbench.models import pretrained as published
from fedbench.models.network import Grey, Network, check_choice, entrance_layers

PATCH = 16
VIT_SIZES = {"tiny": (3, 192, 768), "small": (6, 384, 1536), "base": (12, 768, 3072)}
"""Attention heads, width, and hidden width of a block; twelve blocks each."""


class Vit(Network):
    """torchvision's VisionTransformer on 16x16 patches, without Dropout; the class token is the feature.

    size: tiny, small or base (torchvision's vit_b_16). grey: how one-channel images are handled. pretrained: ImageNet
    weights in all layers but the head; base only; position embeddings are interpolated to the image size. The head is
    initialised like any Linear layer of torch, because torchvision's zeros would keep methods that freeze the head from
    training the body. Square images whose side is a multiple of 16.
    Source: Dosovitskiy et al., ICLR 2021.
    """

    channels_last = ()
    images_only = True

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (3, 224, 224),
        classes: int = 10,
        size: Literal["tiny", "small", "base"] = "small",
        grey: Grey = "repeat",
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        check_choice("size", size, tuple(VIT_SIZES))
        check_choice("pretrained", pretrained, (True, False))
        _, height, width = input_shape
        if height != width or height % PATCH:
            raise ConfigError(
                f"model vit needs square images whose side is a multiple of {PATCH}, these are {height}x{width}; "
                "set data.size where the source has it, or take resnet18, which takes any"
            )
        layers, channels = entrance_layers(input_shape[0], grey)
        if pretrained:
            published.check_fits(channels, size=(size, "base"))
        heads, hidden, mlp = VIT_SIZES[size]
        transformer = VisionTransformer(height, PATCH, 12, heads, hidden, mlp, num_classes=1)
        transformer.heads = nn.Identity()
        if channels != 3:
            transformer.conv_proj = patches_of(channels, transformer.conv_proj)
        if pretrained:
            fit = partial(interpolate_embeddings, height, PATCH)
            published.load_pretrained(transformer, ViT_B_16_Weights.IMAGENET1K_V1, vit_name, fit)
        self.body = nn.Sequential(OrderedDict(layers | {"transformer": transformer}))
        self.head = nn.Linear(hidden, classes)


def patches_of(channels: int, like: nn.Conv2d) -> nn.Conv2d:
    """The first layer for this many channels, with torchvision's initial weights."""
    conv = nn.Conv2d(channels, like.out_channels, PATCH, PATCH)
    nn.init.trunc_normal_(conv.weight, std=(1 / (channels * PATCH**2)) ** 0.5)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return conv


def vit_name(name: str) -> str | None:
    return None if name.startswith("heads.") else name
