"""Published ImageNet weights, downloaded and cached by torchvision."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum

from fedbench.errors import ConfigError

StateDict = dict[str, Any]


def load_pretrained(
    body: nn.Module,
    weights: WeightsEnum,
    names: Callable[[str], str | None],
    edit: Callable[[StateDict], StateDict] = dict,
) -> None:
    """Copies published weights into a body.

    names: from a published name to the body's, or None if the body lacks it. edit: applied to the published state dict
    first. Raises ConfigError if they are neither in torch's cache nor downloadable.
    """
    published = edit(fetch_weights(weights))
    renamed = {new_name: tensor for name, tensor in published.items() if (new_name := names(name)) is not None}
    body.load_state_dict(renamed)


def fetch_weights(weights: WeightsEnum) -> dict[str, Tensor]:
    """The published state dict, from torch's cache or downloaded."""
    try:
        # The hash is checked while downloading; an existing file is used as it is.
        return dict(weights.get_state_dict(progress=False, check_hash=True, weights_only=True))
    except Exception as error:
        reason = str(getattr(error, "reason", error)).strip().splitlines()[0:1] or [type(error).__name__]
        raise ConfigError(
            f"model.pretrained: {weights.url.rpartition('/')[2]} cannot be downloaded ({reason[0]}); put it into "
            f"{torch.hub.get_dir()}/checkpoints, or set model.pretrained false"
        ) from None


def check_fits(channels: int, **options: tuple[str, str]) -> None:
    """Raises ConfigError for options without published weights.

    channels: of the first layer. options: each option's value, and the one with published weights.
    """
    for key, (value, published) in options.items():
        if value != published:
            raise ConfigError(
                f"model.pretrained: no weights are published for model.{key} = {value}; set model.{key} {published}, "
                "or model.pretrained false"
            )
    if channels != 3:
        raise ConfigError(
            f"model.pretrained: no weights are published for a first layer of {channels} channels; one channel enters "
            "with model.grey repeat, others need model.pretrained false"
        )
