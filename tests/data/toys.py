"""Small labelled data sets without pictures, for what is about labels and domains only."""

import numpy as np

from fedbench.data import Dataset


def made(train: list[int], test: list[int], domains: tuple[str, ...] = ()) -> Dataset:
    """A data set with so many images per class (and domain, if any), shuffled within each part."""
    rng = np.random.default_rng(7)
    labels, numbers = [], []
    for counts in (train, test):
        cells = rng.permutation(np.repeat(np.arange(len(counts) * max(1, len(domains))), counts * max(1, len(domains))))
        labels.append(cells % len(counts))
        numbers.append(cells // len(counts))
    rows = np.concatenate(labels)
    return labelled(rows, np.concatenate(numbers), domains, len(labels[0]), classes=len(train))


def labelled(labels: np.ndarray, domains, names: tuple[str, ...], train: int, samples=None, **more) -> Dataset:
    """A data set of these labels, of which the first ones are for training. names: of the domains, if there are any."""
    images = np.zeros((len(labels), 1, 2, 2), np.uint8) if samples is None else samples
    more = {"classes": int(labels.max()) + 1, "task": "classification", "class_names": ()} | more
    parts = {"train_rows": train, "domain_names": names}
    return Dataset("toy", images, labels, domains if names else None, mean=(0.0,), std=(1.0,), **parts, **more)


def corrupted(photographs: int = 600, kinds: int = 15, test: int = 200) -> Dataset:
    """The same labelled photographs under each kind of corruption: the train part of all kinds, then the test part."""
    labels = np.random.default_rng(3).permutation(np.arange(photographs) % 10)
    parts = (labels[: photographs - test], labels[photographs - test :])
    rows = np.concatenate([np.tile(part, kinds) for part in parts])
    domains = np.concatenate([np.repeat(np.arange(kinds), len(part)) for part in parts])
    names = tuple(f"kind{k}" for k in range(kinds))
    return labelled(rows, domains, names, kinds * len(parts[0]))


EVEN = made([100] * 10, [20] * 10)
FOUR = made([30] * 10, [12] * 10, ("art", "cartoon", "photo", "sketch"))
