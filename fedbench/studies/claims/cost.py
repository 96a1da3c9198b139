"""What a row costs: runs, gradient steps, and minutes by a step that is measured on this machine."""

import os
import time
from collections.abc import Iterable
from functools import cache
from math import ceil
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from fedbench import models
from fedbench.config import Config
from fedbench.studies.claims.rows import Row
from fedbench.studies.contenders import TUNE_SEEDS

SHAPES = {"cifar": (3, 32, 32), "fmnist": (1, 28, 28), "pacs": (3, 64, 64)}
"""Shape of an image by a part of its data's name; others are taken for colour images of 32 pixels a side."""
FITS = {"co-pfl": 2.0, "fedselect": 2.0, "ditto": 2.0, "apfl": 2.0, "fedmosaic": 2.0, "fedct": 2.0}
"""Methods that make two passes over their images, or one with as many public ones, by the work of one."""
MEASURED = 5
"""Steps that are timed."""


def runs_of(row: Row) -> Iterable[tuple[Config, int]]:
    """What a row runs, as it is asked for: configuration and seed; a tuned arm's final runs at its first point."""
    for contender in row.arms:
        for values in contender.points if len(contender.points) > 1 else ():
            yield from ((contender.config(Config(), {**values, **contender.trial}), seed) for seed in TUNE_SEEDS)
        yield from ((contender.config(Config(), contender.points[0]), seed) for seed in contender.seeds or row.seeds)


def new_runs(row: Row, known: set[tuple[str, int]]) -> list[tuple[Config, int]]:
    """The runs that no earlier row has; they become known."""
    found = [(config, seed) for config, seed in runs_of(row) if (config.key(), seed) not in known]
    known |= {(config.key(), seed) for config, seed in found}
    return found


def steps_of(config: Config) -> int:
    """Gradient steps of a run, each of one batch."""
    share, clients = config.participation, config.partition.clients
    drawn = share if share > 1 else max(1, round(share * clients))
    images = images_of(config) * (1 - config.data.val)
    fit = config.train.epochs * ceil(images / float(config.train.batch_size)) * FITS.get(config.method.name, 1.0)
    return round(config.rounds * drawn * fit)


def images_of(config: Config) -> float:
    """Training images of a client, validation included: what was asked for, or an even share."""
    asked = config.partition
    if counts := asked.options.get("counts"):
        return sum(map(sum, counts)) / len(counts)
    if asked.images is not None:
        return asked.images * asked.classes
    if asked.train_size is not None:
        return asked.train_size
    return (asked.total or 0) / asked.clients * (1 - asked.test_share if asked.test == "pooled" else 1)


def minutes_of(runs: Iterable[tuple[Config, int]]) -> float:
    """Estimated minutes of training with a run on every core."""
    seconds = sum(steps_of(config) * step_seconds(*work(config)) for config, _ in runs)
    return seconds / 60 / (os.cpu_count() or 1)


def work(config: Config) -> tuple[str, tuple[int, ...], int]:
    """Model, shape of an image and images of a batch, no more than a client has."""
    shape = next((own for part, own in SHAPES.items() if part in config.data.name), SHAPES["cifar"])
    return config.model.name, shape, min(int(config.train.batch_size), ceil(images_of(config)))


@cache
def step_seconds(model: str, shape: tuple[int, ...], batch: int) -> float:
    """Seconds of a plain gradient step on one core: the median of a few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        net = models.load(model)(input_shape=shape, classes=10)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        x, y = torch.zeros(batch, *shape), torch.zeros(batch, dtype=torch.int64)
        seconds = []
        for _ in range(MEASURED):
            begun = time.perf_counter()
            optimizer.zero_grad()
            cross_entropy(net(x), y).backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return median(seconds)
