"""Published ImageNet weights, as torchvision fetches and keeps them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum

from fedbench.errors import ConfigError


def load_pretrained(
    body: nn.Module, weights: WeightsEnum, names: Callable[[str], str | None], edit: Callable[[dict], dict] = dict
) -> None:
    """Copy published weights into a body.

    names: from a published name to that in the body, or None for what the body has not. edit: applied to the published
    state dict first. Raises ConfigError where they are neither in torch's cache nor can be fetched.
    """
    published = edit(fetch_weights(weights))
    renamed = {own: tensor for name, tensor in published.items() if (own := names(name)) is not None}
    body.load_state_dict(renamed)


def fetch_weights(weights: WeightsEnum) -> dict[str, Tensor]:
    """The published state dict, from torch's cache or the network."""
    try:
        # Hashed while it is fetched; a file that is there already is taken as it is.
        return dict(weights.get_state_dict(progress=False, check_hash=True, weights_only=True))
    except Exception as error:
        reason = str(getattr(error, "reason", error)).strip().splitlines()[0:1] or [type(error).__name__]
        raise ConfigError(
            f"model.pretrained: {weights.url.rpartition('/')[2]} cannot be fetched ({reason[0]}); put it into "
            f"{torch.hub.get_dir()}/checkpoints, or set model.pretrained false"
        ) from None


def check_fits(channels: int, **options: tuple[str, str]) -> None:
    """Raises ConfigError for what no weights are published for.

    channels: of the first layer. options: the value of each option, and the one that has published weights.
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
