"""The public, unlabelled images that every client may see."""

import numpy as np

from fedbench.errors import ConfigError


def draw_public(labels: np.ndarray, train: np.ndarray, size: int, rng: np.random.Generator, classes: int) -> np.ndarray:
    """Rows of a class-balanced public set, ascending; where classes do not divide size, some classes give one more.

    labels: int64 [rows] of the whole data set. train: rows to draw from. Raises ConfigError when a class is too small.
    """
    wanted = np.full(classes, size // classes)
    wanted[rng.permutation(classes)[: size % classes]] += 1
    chosen = []
    for label, count in enumerate(wanted):
        pool = train[labels[train] == label]
        if len(pool) < count:
            raise ConfigError(
                f"public.size = {size}: class {label} would give {count} of its {len(pool)} training images; "
                f"at most {smallest(labels[train], classes) * classes} class-balanced images are there"
            )
        chosen.append(rng.permutation(pool)[:count])
    return np.sort(np.concatenate(chosen))


def smallest(labels: np.ndarray, classes: int) -> int:
    """Images of the rarest class."""
    return int(np.bincount(labels, minlength=classes).min())
