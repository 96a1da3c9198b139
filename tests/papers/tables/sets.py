"""The published sets as label vectors and shapes: what partitions and models need of them, without an image."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from fedbench.data import Dataset
from fedbench.data.reading.parts import is_test_row

EVEN = {  # classes, and images of the training and of the test part: as many of each class, or about
    "cifar10": (10, 50_000, 10_000),
    "cifar100": (100, 50_000, 10_000),
    "cinic10": (10, 180_000, 90_000),
    "tiny-imagenet": (200, 100_000, 10_000),
    "mini-imagenet": (100, 50_000, 10_000),
    "fmnist": (10, 60_000, 10_000),
    "mnist": (10, 60_000, 10_000),
    "emnist": (62, 69_793, 11_632),  # a tenth, to be quick; Dirichlet skew is easier to deal on all
    "svhn": (10, 73_257, 26_032),
    "organamnist": (11, 41_052, 17_778),
    "organcmnist": (11, 15_367, 8_216),
    "digits": (10, 1_438, 359),
}
OFFICE = {  # images by class
    "amazon": (92, 82, 94, 99, 100, 100, 99, 100, 94, 98),
    "caltech": (151, 110, 100, 138, 85, 128, 133, 94, 87, 97),
    "dslr": (12, 21, 12, 13, 10, 24, 22, 12, 8, 23),
    "webcam": (29, 21, 31, 27, 27, 30, 43, 30, 27, 30),
}
DOMAINNET = dict.fromkeys(("clipart", "infograph", "painting", "quickdraw", "real", "sketch"), (400,) * 10)
CORRUPTIONS = 15
SHAPES = {
    **dict.fromkeys(("fmnist", "mnist", "emnist", "organamnist", "organcmnist"), (1, 28, 28)),
    "digits": (1, 8, 8),
    "tiny-imagenet": (3, 64, 64),
    "mini-imagenet": (3, 84, 84),
    "domains": (3, 256, 256),
}
"""Those that are not of CIFAR's shape."""


@cache
def published(name: str) -> Dataset:
    """A set of the published size. Raises KeyError for one that is not known here."""
    if name == "cifar10c":
        return corrupted()
    if name in ("office-caltech10", "domainnet10"):
        return in_domains(OFFICE if name == "office-caltech10" else DOMAINNET)
    classes, train, test = EVEN[name]
    return made(name, np.arange(train) % classes, np.arange(test) % classes, classes)


def corrupted() -> Dataset:
    """CIFAR-10's 10,000 test images, in their shuffled order, of which every fifth is a test image in all kinds."""
    labels = np.random.default_rng(0).permutation(np.arange(10_000) % 10)
    test = np.array([is_test_row(row) for row in range(len(labels))])
    parts = [np.tile(labels[rows], CORRUPTIONS) for rows in (~test, test)]
    kinds = [np.repeat(np.arange(CORRUPTIONS), rows.sum()) for rows in (~test, test)]
    return made("cifar10c", *parts, 10, np.concatenate(kinds), [f"kind {kind}" for kind in range(CORRUPTIONS)])


def in_domains(images: dict[str, tuple[int, ...]]) -> Dataset:
    """Every fifth image of each class in each domain is a test image."""
    cells = np.array([*images.values()])  # [domains, classes]
    domains, labels = (np.repeat(place, cells.ravel()) for place in np.indices(cells.shape).reshape(2, -1))
    test = np.concatenate([[is_test_row(row) for row in range(size)] for size in cells.ravel()])
    order = np.argsort(test, kind="stable")
    parts = labels[~test], labels[test]
    return made("domains", *parts, 10, domains[order], [*images])


def made(
    name: str,
    train: np.ndarray,
    test: np.ndarray,
    classes: int,
    domains: np.ndarray | None = None,
    domain_names: Sequence[str] = (),
) -> Dataset:
    labels = np.concatenate([train, test]).astype(np.int64)
    names = tuple(map(str, range(classes)))
    samples = np.broadcast_to(np.uint8(0), (len(labels), *SHAPES.get(name, (3, 32, 32))))
    return Dataset(
        name, samples, labels, domains, "classification", classes, names, tuple(domain_names), len(train), (), ()
    )
