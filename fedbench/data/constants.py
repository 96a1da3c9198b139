"""Normalisation constants of published sets: mean and deviation per channel of pixels in [0, 1], with their source.

Each set names its own in its `PublishedSet`; `data.mean` and `data.std` override them. Deviations are over all pixels
of the training part. Much federated code has smaller ones (CIFAR-10 .2023, MNIST .3015): these are means over images of
each image's own deviation.
"""

from typing import NamedTuple

EXAMPLES = "all pixels of the published training part, as in PyTorch's examples and most federated code"


class Constants(NamedTuple):
    """mean, std: one number per channel, or None if they are measured. source: their origin."""

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    source: str


MEASURED = Constants(None, None, "no published or common constants: measured on the training part when it is decoded")
NOT_NORMALISED = Constants(None, None, "tokens are not normalised")
CIFAR10 = Constants((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), EXAMPLES)
