"""Which samples are held out where a seed splits the data anew: by class, by whole groups, or the last ones.

An owner is what is split by itself: a client, or, before samples are dealt, a class or a domain.
"""

import numpy as np

from fedbench.data.partitions.assignment import positions_in_runs

PASSES = 3
"""How often all groups are looked at again, at most, to improve what they hold."""
WHOLE = 10
"""How much more the number of an owner's samples counts than that of one of its classes."""
LACKS = 1e6
"""The cost of an owner with samples on one side only: more than any departure from its share."""


def held_out_sizes(sizes: np.ndarray, share: float) -> np.ndarray:
    """round(share * size) for every owner, at least 1 and at most size - 1; 0 of a single sample. int64 [owners]."""
    counts = np.maximum(1, (share * sizes + 0.5).astype(np.int64))
    return np.minimum(counts, sizes - 1).clip(0)


def draw_by_class(owners: np.ndarray, classes: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A share of every owner's samples, with its classes in proportion, bool [n].

    owners, classes: integers >= 0 [n]. Of a class, the number is its share rounded up or down; which classes are
    rounded up is drawn, so that each sample is as likely to be held out as any other. But a class with at least half a
    sample to give gives one, as long as such classes fill at most half of what is held out.
    """
    if not len(owners):
        return np.zeros(0, bool)
    width = int(classes.max()) + 1
    cells, cell, counts = np.unique(owners * width + classes, return_inverse=True, return_counts=True)
    sizes = held_out_sizes(np.bincount(owners), share)
    quotas = draw_cell_sizes(counts, cells // width, sizes, rng)
    order = np.lexsort((rng.random(len(cell)), cell))
    ranks = np.empty(len(cell), np.int64)
    ranks[order] = positions_in_runs(cell[order])
    return ranks < quotas[cell]


def draw_cell_sizes(counts: np.ndarray, owners: np.ndarray, quotas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many samples of every cell are held out, int64 [cells]; those of an owner sum to what it wants.

    counts: samples of the cells. owners: of the cells, ascending. quotas: int64 [owners].
    """
    totals = np.bincount(owners, counts, len(quotas)).astype(np.int64)
    doubled = 2 * counts * quotas[owners]  # twice a cell's part of what is wanted, in units of 1 / total
    sure = (doubled >= totals[owners]) & (doubled < 2 * totals[owners])
    sure &= (2 * np.bincount(owners, sure, len(quotas)) <= quotas)[owners]
    left = quotas - np.bincount(owners, sure, len(quotas)).astype(np.int64)
    return sure + draw_systematically(np.where(sure, 0, counts), owners, left, rng)


def draw_systematically(
    counts: np.ndarray, owners: np.ndarray, quotas: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Integers [cells] that sum to what each owner wants: a cell's exact part of it, rounded up or down.

    Systematic sampling: equally spaced points over an owner's cells in random order, the first one at random, so that
    a cell's mean over draws is its exact part.
    """
    order = np.lexsort((rng.random(len(counts)), owners))
    owner, sizes = owners[order], counts[order]
    sums = np.bincount(owners, counts, len(quotas)).astype(np.int64)
    ends, totals = np.cumsum(sizes) - (np.cumsum(sums) - sums)[owner], sums.clip(1)
    start, each = rng.integers(0, totals)[owner], quotas[owner]

    def points_before(place: np.ndarray) -> np.ndarray:
        return (place * each - start + totals[owner] - 1) // totals[owner]

    numbers = np.empty(len(counts), np.int64)
    numbers[order] = points_before(ends) - points_before(ends - sizes)
    return numbers


def draw_groups(
    groups: np.ndarray,
    owners: np.ndarray,
    classes: np.ndarray,
    share: float,
    rng: np.random.Generator,
    stay: np.ndarray | None = None,
) -> np.ndarray:
    """Whole groups that hold about a share of every owner's samples and of its classes, bool [n].

    groups, owners, classes: integers >= 0 [n]. stay: groups that are not held out. A group is on one side everywhere,
    also if several owners have samples of it. Groups are taken in random order while this brings owners and their
    classes closer to the share. Then groups change sides, alone or in exchange for another of an owner, as long as that
    helps; an owner with samples on one side only is the worst of all.
    """
    names, group = np.unique(groups, return_inverse=True)
    sides = _Sides(group, owners, classes, share)
    movable = [True] * len(names) if stay is None else (~np.isin(names, stay)).tolist()
    able = np.flatnonzero(movable)
    for one in rng.permutation(able).tolist():
        sides.flip_if_better(one)
    sides.lacks = LACKS
    for _ in range(PASSES):
        moved = False
        for one, chance in zip(rng.permutation(able).tolist(), rng.random(len(able)).tolist(), strict=True):
            others = sides.of_same_owner(one)
            other = others[int(chance * len(others))]
            if sides.flip_if_better(one):
                moved = True
            elif movable[other] and sides.held[other] != sides.held[one]:
                moved |= sides.flip_if_better(one, other)
        if not moved:
            break
    return np.array(sides.held)[group]


class _Sides:
    """Which groups are held out, and how far that is from the share.

    What is counted, by numbers: the samples of a class of an owner, and, from `first` on, those of an owner. A group
    has few of them, so that lists are much faster than arrays. parts: what a group has of each, as (number, samples).
    holders: the groups that have some of each. sizes: of all groups; goals: their share; counts: of those held out.
    weights: how much a departure counts, 0 in what one group has alone. held: by group. lacks: the cost of an owner
    with samples on one side only.
    """

    def __init__(self, group: np.ndarray, owners: np.ndarray, classes: np.ndarray, share: float) -> None:
        cell = np.unique(owners * (int(classes.max(initial=0)) + 1) + classes, return_inverse=True)[1]
        self.first = int(cell.max(initial=-1)) + 1
        counted = np.concatenate([cell, self.first + np.unique(owners, return_inverse=True)[1]])
        width = int(counted.max(initial=-1)) + 1
        keys, samples = np.unique(np.tile(group, 2) * width + counted, return_counts=True)
        sizes, several = np.bincount(counted, minlength=width), np.bincount(keys % width, minlength=width) > 1
        heavier = np.where(np.arange(width) < self.first, 1, WHOLE)
        self.sizes, self.goals = sizes.tolist(), (share * sizes).tolist()
        self.weights = (several * heavier / (share * sizes + 1)).tolist()
        self.counts, self.lacks = [0] * width, 0.0
        groups = int(group.max(initial=-1)) + 1
        self.held = [False] * groups
        self.parts: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
        self.holders: list[list[int]] = [[] for _ in range(width)]
        for key, number in zip(keys.tolist(), samples.tolist(), strict=True):
            self.parts[key // width].append((key % width, number))
            self.holders[key % width].append(key // width)

    def of_same_owner(self, one: int) -> list[int]:
        """The groups of the (last) owner of a group."""
        return self.holders[self.parts[one][-1][0]]

    def flip_if_better(self, *groups: int) -> bool:
        """Puts groups on their other sides if this is closer to the shares."""
        better = sum(map(self._flip, groups)) < -1e-9  # not by a rounding error, which differs between processors
        if not better:
            for one in groups:
                self._flip(one)
        return better

    def _flip(self, one: int) -> float:
        """Puts a group on its other side; returns what it costs."""
        sign, cost = (-1 if self.held[one] else 1), 0.0
        for number, samples in self.parts[one]:
            now, goal, size = self.counts[number], self.goals[number], self.sizes[number]
            then = now + sign * samples
            cost += ((then - goal) ** 2 - (now - goal) ** 2) * self.weights[number]
            if number >= self.first:
                cost += self.lacks * ((then in (0, size)) - (now in (0, size)))
            self.counts[number] = then
        self.held[one] = not self.held[one]
        return cost


def last_of_each(
    owners: np.ndarray, order: np.ndarray, extent: int, share: float, least: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The last share of every owner's samples in an order, and those before them that overlap them; each bool [n].

    owners, order: int64 [n]. extent: how far a sample reaches, in units of the order. Samples of one place in the order
    stay on one side: the cut is moved to the nearest end of them. least: how many an owner of two or more holds out at
    least.
    """
    last, overlapping = np.zeros(len(owners), bool), np.zeros(len(owners), bool)
    ordered = np.lexsort((order, owners))
    for samples in np.split(ordered, np.flatnonzero(np.diff(owners[ordered])) + 1):
        count = len(samples)
        start = count - min(max(least, int(share * count + 0.5)), count - 1) if count else 0
        if not 0 < start < count:
            continue
        values = order[samples]
        ends = (np.searchsorted(values, values[start], side) for side in ("left", "right"))
        cuts = [int(end) for end in ends if 0 < end < count]
        if not cuts:
            continue
        cut = min(cuts, key=lambda end, start=start: abs(end - start))  # type: ignore[misc]
        last[samples[cut:]] = True
        overlapping[samples[:cut]] = values[:cut] + extent > values[cut]
    return last, overlapping
