"""Normalisation constants: mean and deviation per channel of pixels in [0, 1], each with its source.

`data.mean` and `data.std` override them. Deviations are over all pixels of the training part. Much federated code has
smaller ones (CIFAR-10 .2023, MNIST .3015): these are means over images of each image's own deviation.
"""

from typing import NamedTuple

EXAMPLES = "all pixels of the published training part, as in PyTorch's examples and most federated code"
NOT_PUBLISHED = "no published or common constants: measured on the training part when it is decoded"

NOT_NORMALISED = "tokens are not normalised"


class Constants(NamedTuple):
    """mean, std: one number per channel, or None if they are measured. source: their origin."""

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    source: str


CIFAR10 = Constants((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), EXAMPLES)
MEDMNIST = Constants((0.5,), (0.5,), "the experiments of MedMNIST's authors")
NORMALISATION_CONSTANTS = {
    "digits": Constants(None, None, NOT_PUBLISHED),
    "mnist": Constants((0.1307,), (0.3081,), EXAMPLES),
    "fmnist": Constants((0.2860,), (0.3530,), EXAMPLES),
    "emnist": Constants((0.1736,), (0.3317,), f"{EXAMPLES} (byclass)"),
    "svhn": Constants((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), EXAMPLES),
    "cifar10": CIFAR10,
    "cifar100": Constants((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), EXAMPLES),
    "cifar10c": CIFAR10._replace(source="those of CIFAR-10, from which the corrupted images are made"),
    "cinic10": Constants(
        (0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835), "the authors' own README"
    ),
    "mini-imagenet": Constants(None, None, NOT_PUBLISHED),
    "tiny-imagenet": Constants((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821), EXAMPLES),
    "organamnist": MEDMNIST,
    "organcmnist": MEDMNIST,
    "office-caltech10": Constants(None, None, NOT_PUBLISHED),
    "domainnet10": Constants(None, None, NOT_PUBLISHED),
    "pacs": Constants(None, None, NOT_PUBLISHED),
    "femnist": Constants(None, None, NOT_PUBLISHED),
    "shakespeare": Constants(None, None, NOT_NORMALISED),
    "har": Constants(None, None, NOT_PUBLISHED),
    "pamap2": Constants(None, None, NOT_PUBLISHED),
    "ag-news": Constants(None, None, NOT_NORMALISED),
    "camelyon17": Constants(None, None, NOT_PUBLISHED),
}


def published_constants(name: str) -> Constants:
    """The constants of a data set, to be measured if unknown."""
    return NORMALISATION_CONSTANTS.get(name, Constants(None, None, NOT_PUBLISHED))
