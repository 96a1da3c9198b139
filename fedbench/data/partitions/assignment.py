"""Flat arrays of assignments, and random choices within groups: the tools of all partition schemes.

Nothing here loops over clients or images in Python, so 100,000 clients take seconds. All randomness comes from PCG64
streams, whose integers and doubles are the same on every platform.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedbench.config import PartitionConfig
from fedbench.config.words import plural
from fedbench.errors import ConfigError

DENSE = 4
"""Choices of more than one in DENSE shuffle all numbers; others draw until all differ."""


class Assignment(NamedTuple):
    """One part of a partition. rows, owners: int64 [n], one entry per image of a client."""

    rows: np.ndarray
    owners: np.ndarray

    def chosen(self, which: np.ndarray) -> "Assignment":
        """Some of the entries, bool [n]."""
        return Assignment(self.rows[which], self.owners[which])


Deal = tuple[Assignment, Assignment]
"""Training (validation included) and test images of all clients."""


def random_stream(seed: int, *stream: int | str) -> np.random.Generator:
    """The random stream of this name; the same on every platform."""
    digest = hashlib.sha256(repr(("partition", seed, *stream)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def distinct_values(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, ascending, and the position of each value among them, int64 [n].

    values: integers >= 0 [n] that are not much larger than n: this counts them, which is faster than to sort them.
    """
    counts = np.bincount(values)
    return np.flatnonzero(counts), (np.cumsum(counts > 0) - 1)[values]


def random_ranks(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random order within each group: 0, 1, ... for its elements, int64 [n]. groups: integers >= 0 [n]."""
    order = np.argsort(
        groups * len(groups) + rng.permutation(len(groups))
    )  # all keys differ, so the order is the same everywhere
    out = np.empty(len(groups), np.int64)
    out[order] = positions_in_runs(groups[order])
    return out


def positions_in_runs(groups: np.ndarray) -> np.ndarray:
    """0, 1, ... in each run of equal numbers, int64 [n]."""
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - np.repeat(begins, np.diff(begins, append=len(groups)))


def apportion(sizes: np.ndarray, owners: np.ndarray, quotas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Integers [groups] that sum to what each owner wants, in proportion to the sizes of the owner's groups.

    Largest remainder, ties at random. sizes, owners: int64 [groups]. quotas: int64 [owners].
    """
    totals = np.bincount(owners, weights=sizes, minlength=len(quotas)).astype(np.int64).clip(1)
    # In units of 1 / total, so that remainders are integers and compare exactly.
    counts, remainders = np.divmod(sizes * quotas[owners], totals[owners])
    missing = quotas - np.bincount(owners, weights=counts, minlength=len(quotas)).astype(np.int64)
    order = _by_owner_and_remainder(owners, remainders, rng.random(len(sizes)))
    lucky = positions_in_runs(owners[order]) < missing[owners[order]]
    counts[order[lucky]] += 1
    return counts


def _by_owner_and_remainder(owners: np.ndarray, remainders: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """The order by owner, then from the largest remainder to the smallest, then by chance; int64 [groups]."""
    width = int(remainders.max(initial=0)) + 1
    if (int(owners.max(initial=0)) + 1) * width * len(owners) >= 2**63:
        return np.lexsort((chance, -remainders, owners))
    # One key per group, which sorts in a fraction of the time of three.
    ranks = np.empty(len(owners), np.int64)
    ranks[np.argsort(chance, kind="stable")] = np.arange(len(owners))
    return np.argsort((owners * width + (width - 1 - remainders)) * len(owners) + ranks)


def draw_distinct(sizes: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each group, `counts` different numbers from 0 to `sizes` - 1, group after group; int64 [sum(counts)].

    A group that wants more than there are draws its numbers with replacement.
    """
    groups = np.repeat(np.arange(len(counts)), counts)
    places = rng.integers(0, sizes[groups])
    ends = np.cumsum(counts)
    for group in np.flatnonzero((counts * DENSE > sizes) & (counts <= sizes)):
        places[ends[group] - counts[group] : ends[group]] = rng.permutation(sizes[group])[: counts[group]]
    loose = np.flatnonzero((counts <= sizes)[groups])
    while len(loose):
        again = loose[repeated_positions(groups[loose], places[loose])]
        places[again] = rng.integers(0, sizes[groups[again]])
        loose = loose[np.isin(groups[loose], groups[again])]
    return places


def repeated_positions(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Positions of elements that repeat an earlier value of their group, ascending."""
    keys = groups * (values.max(initial=0) + 1) + values
    ordered = np.sort(keys)
    twice = ordered[1:][np.diff(ordered) == 0]
    alike = np.flatnonzero(np.isin(keys, twice))  # few: only these need a stable order
    order = alike[np.argsort(keys[alike], kind="stable")]
    return np.sort(order[1:][np.diff(keys[order]) == 0])


def deal_out(rows: np.ndarray, counts: np.ndarray, rng: np.random.Generator, keep: int | None = None) -> Assignment:
    """Shuffles these rows and cuts them into pieces of these sizes; keeps the first `keep` of each piece, or all."""
    owners = np.repeat(np.arange(len(counts)), counts)
    shuffled = rng.permutation(rows)[: len(owners)]
    dealt = Assignment(shuffled, owners)
    return dealt if keep is None else dealt.chosen(positions_in_runs(owners) < keep)


def deal_again(rows: np.ndarray, owners: np.ndarray, each: int, rng: np.random.Generator) -> Assignment:
    """`each` of these rows for every owner: shuffled, dealt, and dealt again from the start when used up.

    An owner's images differ unless it gets more than there are; each image is dealt equally often, or once more.
    """
    different_ones, times = np.unique(owners, return_counts=True)
    order = rng.permutation(len(times))
    owners = np.repeat(different_ones[order], times[order] * each)
    return Assignment(np.resize(rng.permutation(rows), len(owners)), owners)


def even_sizes(total: int, count: int) -> np.ndarray:
    """Splits `total` into `count` numbers that differ by at most one, larger ones first; int64 [count]."""
    return total // count + (np.arange(count) < total % count)


def round_to_total(shares: np.ndarray, total: int) -> np.ndarray:
    """Integers [n, k] whose rows sum to `total`, as `shares` do: rounded down, the largest fractions of a row up."""
    whole = np.floor(shares).astype(np.int64)
    rank = np.argsort(np.argsort(whole - shares, axis=1, kind="stable"), axis=1)
    return whole + (rank < total - whole.sum(axis=1, keepdims=True))


def join_assignments(pieces: list[Assignment]) -> Assignment:
    return Assignment(*(np.concatenate(arrays) for arrays in zip(*pieces, strict=True)))


def rows_by_client(holdings: Assignment, clients: int, sort: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all clients, client after client, ascending or in order; and their number per client."""
    width = holdings.rows.max(initial=0) + 1
    if sort:
        ordered = np.sort(holdings.owners * width + holdings.rows) % width
    else:
        ordered = holdings.rows[np.argsort(holdings.owners, kind="stable")]
    return ordered, np.bincount(holdings.owners, minlength=clients)


def check_enough(
    images: int, options: PartitionConfig, part: str, key: str, each: int = 1, clients: int = 0, where: str = ""
) -> None:
    """Raises ConfigError if there are too few images to give each client `each` disjoint ones, as set by `key`.

    clients: their number, if not all.
    """
    clients = clients or options.clients
    if images < clients * each:
        lower = f"partition.clients or partition.{key}" if each > 1 else "partition.clients"
        raise_total = ", or raise partition.total" if options.total is not None else ""
        raise ConfigError(
            f"partition {options.name}: {where}{plural(clients, 'client')} with at least "
            f"{plural(each, f'{part} sample')} each: {clients * each} in all, there are {images}; lower "
            f"{lower}{raise_total}"
        )


def shared_image_warnings(hands: Assignment, part: str, image: np.ndarray) -> Iterator[str]:
    """One sentence if clients hold the same image. image: int64 [rows], its number for every row."""
    clients = int(hands.owners.max(initial=0)) + 1
    images = np.unique(image[hands.rows] * clients + hands.owners) // clients
    holders = np.bincount(images)
    if holders.max(initial=0) > 1:
        yield (
            f"partition.reuse: {(holders > 1).sum()} of {(holders > 0).sum()} {part} samples are held by several "
            f"clients (up to {holders.max()})"
        )


def repeated_image_warnings(
    hands: Assignment, part: str, why: str = ", because their share of a class is larger than the class"
) -> Iterator[str]:
    """One sentence if a client holds an image more than once."""
    twice = np.unique(hands.owners[repeated_positions(hands.owners, hands.rows)])
    if len(twice):
        holders = f"{len(twice)} clients (the first: {twice[0]}) hold" if len(twice) > 1 else f"client {twice[0]} holds"
        yield f"{holders} some {part} samples more than once{why}"
