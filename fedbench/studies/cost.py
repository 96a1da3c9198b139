"""What runs cost, before they are run: gradient steps, and hours by a step that is measured on this machine."""

import time
from collections.abc import Iterable
from functools import cache
from math import ceil, prod

import torch
from torch.nn.functional import cross_entropy

from fedbench import methods, models
from fedbench.config import Config, PartitionConfig
from fedbench.config.counts import count_of
from fedbench.data.partitions import resolved
from fedbench.data.partitions.scheme import ignored
from fedbench.processor import cores
from fedbench.studies.resolve import settled

SETS = {
    "cifar10c": (50_000, (3, 32, 32), 10),
    "cifar100": (50_000, (3, 32, 32), 100),
    "cifar10": (50_000, (3, 32, 32), 10),
    "cinic10": (90_000, (3, 32, 32), 10),
    "svhn": (73_257, (3, 32, 32), 10),
    "emnist": (697_932, (1, 28, 28), 62),
    "fmnist": (60_000, (1, 28, 28), 10),
    "mnist": (60_000, (1, 28, 28), 10),
    "organamnist": (34_561, (1, 28, 28), 11),
    "organcmnist": (12_975, (1, 28, 28), 11),
    "tiny-imagenet": (100_000, (3, 64, 64), 200),
    "mini-imagenet": (50_000, (3, 84, 84), 100),
    "office-caltech10": (2_025, (3, 256, 256), 10),
    "domainnet10": (18_000, (3, 256, 256), 10),
    "pacs": (8_000, (3, 64, 64), 7),
    "digits": (1_438, (1, 8, 8), 10),
    "diabetes": (354, (10,), 2),
}
"""Training images, shape of one, and classes (two for numbers to predict); other sets are taken for CIFAR-10."""
TESTS = 1 / 5
"""Images of the test part, of those of the training part."""
POINTS = 2
"""Models of a client that are evaluated."""
LOOK = 1 / 3
"""A forward pass, of the work of a gradient step on the same image."""
MEASURED = 12
"""Steps that are timed, the first one not counted."""
MOST = 0.3
"""Seconds after which no further one is."""
NUMBERS = 2**20
"""Numbers of the images in a batch that is timed, at most; a larger batch takes as many times longer."""


def steps_of(config: Config) -> int:
    """Gradient steps of a run, each of one batch, as its method counts them."""
    config = settled(config)
    kind, clients = methods.load(config.method.name), config.partition.clients
    fits = {"all": clients, "pooled": 1}.get(kind.trains, count_of(clients, config.participation))
    held = images_of(config) * (1 - config.data.val) * (clients if kind.trains == "pooled" else 1)
    options = methods.checked_options(config.method)
    return config.rounds * fits * kind.steps(options, config.train, max(1, round(held)), config.public.size)


def images_of(config: Config) -> float:
    """Training images of a client, validation included: what was asked for, or an even share."""
    asked = dealt(config)
    if counts := asked.options.get("counts"):
        return sum(map(sum, counts)) / len(counts)
    if asked.images is not None:
        return asked.images * asked.classes
    if asked.train_size is not None:
        return asked.train_size
    pooled = asked.test == "pooled"
    total = asked.total or set_of(config)[0] * (1 + TESTS if pooled else 1) - config.public.size
    return total / asked.clients * (1 - asked.test_share if pooled else 1)


def held_for_testing(config: Config) -> float:
    """Test images of a client: what was asked for, or its share of the test part."""
    asked = dealt(config)
    if asked.test_images is not None:
        return asked.test_images * asked.classes
    if asked.test_size is not None:
        return asked.test_size
    return images_of(config) * (asked.test_share / (1 - asked.test_share) if asked.test == "pooled" else TESTS)


def dealt(config: Config) -> PartitionConfig:
    """The partition as it is dealt from data in two parts: keys that its scheme does not read are as if not given."""
    asked, defaults = resolved(config.partition, one_part=False), PartitionConfig()
    return asked.model_copy(update={key: getattr(defaults, key) for key in ignored(asked)})


def looks_of(config: Config) -> float:
    """Images that all evaluations of a run look at."""
    clients, sample = config.partition.clients, config.evaluate.clients
    seen = min(clients, sample if isinstance(sample, int) else clients)
    each = held_for_testing(config) + images_of(config) * config.data.val
    return ceil(config.rounds / config.evaluate.every) * seen * each * POINTS


def hours_of(configs: Iterable[Config]) -> float:
    """Estimated hours of training and evaluation with a run on every core."""
    return sum(map(_seconds_of, configs)) / 3600 / cores()


def _seconds_of(config: Config) -> float:
    kind = work(config)
    return step_seconds(*kind) * (steps_of(config) + LOOK * looks_of(config) / kind[-1])


def work(config: Config) -> tuple[str, tuple[int, ...], int, int]:
    """Model, shape of an image, classes, and images of a batch, no more than a client has.

    A model of the user's own is taken for what `auto` takes.
    """
    _, shape, classes = set_of(config)
    most = ceil(images_of(config))
    batch = most if config.train.batch_size == "full" else min(config.train.batch_size, most)
    own = ":" in config.model.name  # whose constructor may ask for anything
    return models.resolve("auto" if own else config.model.name, shape), shape, classes, max(2, batch)


def set_of(config: Config) -> tuple[int, tuple[int, ...], int]:
    """Training images, shape and classes of the data."""
    return next((known for name, known in SETS.items() if name in config.data.name), SETS["cifar10"])


@cache
def step_seconds(model: str, shape: tuple[int, ...], classes: int, batch: int) -> float:
    """Seconds of a plain gradient step on one core: the median of a few, of a part of the batch where it is large."""
    timed = min(batch, max(2, NUMBERS // prod(shape)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        net = models.load(model)(input_shape=shape, classes=classes)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        x, y = torch.zeros(timed, *shape), torch.zeros(timed, dtype=torch.int64)
        seconds = []
        for _ in range(MEASURED):
            begun = time.perf_counter()
            optimizer.zero_grad()
            cross_entropy(net(x), y).backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begun)
            if sum(seconds) > MOST and len(seconds) > 1:
                break
    finally:
        torch.set_num_threads(threads)
    return sorted(seconds[1:])[(len(seconds) - 1) // 2] * batch / timed
