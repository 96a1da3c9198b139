"""Which training images are held out for validation."""

from collections.abc import Iterator

import numpy as np

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.data.partitions.assignment import Assignment, apportion, distinct_values, random_ranks
from fedbench.data.partitions.held_out import draw_by_class, draw_groups, held_out_sizes, last_of_each
from fedbench.data.partitions.pool import MERGING, SamplePool, groups_of, places_in_order
from fedbench.data.partitions.scheme import load


def hold_out_validation(
    train: Assignment, source: SamplePool, config: Config, rng: np.random.Generator
) -> tuple[Assignment, np.ndarray]:
    """The training images, without those that overlap validation, and which of them are held out for it, bool [n].

    As the test images are: the last ones of each client, whole groups, or by class. An image that several clients have
    is held out at all of them, or at none.
    """
    options, share, (rows, owners) = config.partition, config.data.val, train
    groups = groups_of(source, options)
    if not share or not len(rows) or (options.test != "last" and groups is None):
        image = load(options.name).image(source)
        if share and are_shared(train, image):
            return train, draw_shared_validation(train, image, source.labels, share, rng)
        return train, draw_validation(train, source.labels, share, rng)
    if groups is not None:
        return train, validation_groups(groups[rows], owners, source.labels[rows], share, rng)
    last, overlapping = last_of_each(owners, places_in_order(source)[rows], source.extent, share)
    return train.chosen(~overlapping), last[~overlapping]


def validation_groups(
    groups: np.ndarray, owners: np.ndarray, labels: np.ndarray, share: float, rng: np.random.Generator
) -> np.ndarray:
    """Whole groups held out for validation, bool [n], so that every owner has samples left to train on."""
    val = draw_groups(groups, owners, labels, share, rng)
    sizes = np.bincount(owners)
    while len(without := np.flatnonzero((np.bincount(owners, val, len(sizes)) == sizes) & (sizes > 0))):
        val &= ~np.isin(groups, groups[np.isin(owners, without)])
    return val


def are_shared(train: Assignment, image: np.ndarray) -> bool:
    """Whether several clients have the same image. image: int64 [rows], its number for every row."""
    _, first, place = np.unique(image[train.rows], return_index=True, return_inverse=True)
    return bool((train.owners[first][place] != train.owners).any())


def draw_shared_validation(
    train: Assignment, image: np.ndarray, labels: np.ndarray, share: float, rng: np.random.Generator
) -> np.ndarray:
    """Held-out images, bool [n], each at all clients that have it or at none.

    Else a client would validate on what another one trains on. Of the images of several clients a share is held out, by
    class. Of those that it has alone, a client holds out what then lacks of round(share * k) of its k different ones,
    as in `draw_validation`, in proportion to its classes.
    """
    _, first, place = np.unique(image[train.rows], return_index=True, return_inverse=True)
    owners, images = np.divmod(np.unique(train.owners * len(first) + place), len(first))
    classes, sizes = labels[train.rows[first]], np.bincount(owners)
    held, is_shared = np.zeros(len(first), bool), np.bincount(images) > 1
    shared = np.flatnonzero(is_shared)
    held[shared] = draw_by_class(np.zeros(len(shared), np.int64), classes[shared], share, rng)
    lacking = (held_out_sizes(sizes, share) - np.bincount(owners, held[images], len(sizes)).astype(np.int64)).clip(0)
    alone = ~is_shared[images]
    own, its = owners[alone], images[alone]
    quotas = np.minimum(lacking, np.bincount(own, minlength=len(sizes)))
    width = int(classes.max()) + 1
    cells, group = distinct_values(own * width + classes[its])
    counts = apportion(np.bincount(group), cells // width, quotas, rng)
    held[its] = random_ranks(group, rng) < counts[group]
    without = np.bincount(owners, held[images], len(sizes)) == sizes
    held[images[without[owners]]] = False
    return held[place]


def shared_lines(kept: Assignment, image: np.ndarray, val: np.ndarray) -> Iterator[str]:
    """A line if clients of several images hold out none, because others have them too. val: bool [n]."""
    different = np.unique(kept.owners * len(image) + image[kept.rows]) // len(image)
    sizes, held = np.bincount(different), np.bincount(kept.owners, val)
    if (count := int(((held == 0) & (sizes > 1)).sum())) and are_shared(kept, image):
        whose = "because other clients train on the same ones"
        yield f"{count} of {plural(len(sizes), 'client')} have no validation samples, {whose}"


def draw_validation(train: Assignment, labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """round(share * k) of each client's k different training images, at least 1 and at most k - 1, bool [n].

    No image if share is 0 or k is 1. Classes keep their proportions up to rounding, and rare ones over all clients
    together (`with_rare_classes`). Copies of an image at a client stay together.
    """
    order = np.argsort(train.owners * len(labels) + train.rows)
    rows, owners = train.rows[order], train.owners[order]
    first = (np.diff(rows, prepend=-1) != 0) | (np.diff(owners, prepend=-1) != 0)
    images = np.bincount(owners[first])
    quotas = held_out_sizes(images, share) if share else np.zeros_like(images)
    classes = int(labels.max()) + 1
    cells, group = distinct_values(owners[first] * classes + labels[rows[first]])
    sizes = np.bincount(group)
    counts = apportion(sizes, cells // classes, quotas, rng)
    counts = with_rare_classes(counts, sizes, cells // classes, cells % classes, quotas)
    is_val = random_ranks(group, rng) < counts[group]
    val = np.empty(len(rows), bool)
    val[order] = is_val[np.cumsum(first) - 1]
    return val


def with_rare_classes(
    counts: np.ndarray, sizes: np.ndarray, owners: np.ndarray, labels: np.ndarray, quotas: np.ndarray
) -> np.ndarray:
    """Numbers of held-out images per cell, a client's images of a class, in which no class is far below its share.

    A class of which every client has a few images is rounded down at each of them, so that validation would have none.
    Where less than half of its share over all clients is held out of a class of less than half the mean size, clients
    with the largest remainders, and of these the ones with the most images, hold out one more of it, and one less of
    the class of which they hold out the most among those that were rounded up.

    counts, sizes, owners, labels: int64 [cells]. quotas: int64 [owners].
    """
    totals = np.bincount(owners, weights=sizes)
    exact = sizes * quotas[owners] / totals[owners]
    share, val_counts = np.bincount(labels, weights=exact), np.bincount(labels, weights=counts)
    counts = counts.copy()
    images = np.bincount(labels, weights=sizes)
    is_rare = 2 * images < images[images > 0].mean()
    for label in np.flatnonzero(is_rare & (2 * val_counts < np.rint(share))):
        members = np.flatnonzero(labels == label)
        members = members[np.lexsort((-sizes[members], counts[members] - exact[members]))]
        for cell in members[: round(share[label] - val_counts[label])]:
            is_rounded_up = counts * totals[owners] > sizes * quotas[owners]
            others = np.flatnonzero((owners == owners[cell]) & (labels != label) & is_rounded_up)
            if sizes[cell] > counts[cell] and len(others):
                counts[cell] += 1
                counts[others[counts[others].argmax()]] -= 1
    return counts


def own_validation(train: Assignment, drawn: np.ndarray, source: SamplePool, config: Config) -> tuple[np.ndarray, str]:
    """The images held out by a data set's own validation part, bool [n], and a line about it.

    drawn: those drawn if it has none. A client that would have nothing left to train on keeps its images.
    """
    part = f"the data's own validation part ({len(source.val_rows)} samples)"
    test = config.partition.test
    if test in MERGING:
        return drawn, f"{part} is merged with the other parts and split again (partition.test = {test})"
    if not config.data.val:
        return np.zeros(len(train.rows), bool), f"{part} is used for training, because data.val = 0"
    val = (train.rows >= source.val_rows.start) & (train.rows < source.val_rows.stop)
    left = np.bincount(train.owners[~val], minlength=train.owners.max(initial=0) + 1)
    return val & (left[train.owners] > 0), f"{part} is used for validation instead of data.val"
