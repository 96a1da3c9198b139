"""Who holds which images: pure functions of labels, options and a seed.

Every scheme deals the train part and the test part to the clients so that a client's two parts have the same classes;
then a share of each client's training images is held out for validation. All row numbers index `Dataset.images`.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fedbench.config import Config, PartitionConfig
from fedbench.data.dataset import Dataset
from fedbench.data.noise import check_flips
from fedbench.data.public import draw_public
from fedbench.errors import ConfigError


@dataclass(frozen=True, eq=False, slots=True)
class ClientRows:
    """Row numbers of one client, int64, ascending: training, validation and test images."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of every client, and those of the public set where there is one."""

    clients: list[ClientRows]
    public: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """sha256 of all row numbers, in hexadecimal."""
        digest = hashlib.sha256()
        parts = [rows for client in self.clients for rows in (client.train, client.val, client.test)]
        for rows in [*parts, np.empty(0) if self.public is None else self.public]:
            digest.update(len(rows).to_bytes(8, "little") + rows.astype("<i8").tobytes())
        return digest.hexdigest()

    def class_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Training images per client and class, int64 [clients, classes], by the labels [rows] of the data set."""
        return np.stack([np.bincount(labels[client.train], minlength=classes) for client in self.clients])


@dataclass(frozen=True, eq=False)
class Pools:
    """What there is to deal: for each class, the rows of its training and of its test images."""

    train: list[np.ndarray]
    test: list[np.ndarray]

    @property
    def classes(self) -> int:
        return len(self.train)


Hand = tuple[np.ndarray, np.ndarray]
"""Training and test rows of one client."""


def partition(dataset: Dataset, config: Config, seed: int) -> Partition:
    """The partition of a run; `partition.seed` takes the place of the run's seed. Raises ConfigError.

    The public set leaves the train part first, so it is disjoint from every client.
    """
    options = config.partition
    seed = seed if options.seed is None else options.seed
    check_flips(options.flip_clients, options.clients)
    train, public = np.arange(dataset.train_rows), None
    if config.public.size:
        public = draw_public(
            dataset.labels, train, config.public.size, generator(seed, "public"), classes=dataset.classes
        )
        train = np.setdiff1d(train, public, assume_unique=True)
    test = np.arange(dataset.train_rows, len(dataset.labels))
    pools = Pools(*(by_class(dataset.labels, rows, dataset.classes) for rows in (train, test)))
    hands = SCHEMES[options.name](pools, options, generator(seed, "deal"))
    held = generator(seed, "val")
    clients = [client_rows(hand, dataset.labels, config.data.val, held) for hand in hands]
    return Partition(clients, public, tuple(repeats(hands)))


def generator(seed: int, purpose: str) -> np.random.Generator:
    """The random stream of one purpose; the same on every platform."""
    digest = hashlib.sha256(repr(("partition", seed, purpose)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def by_class(labels: np.ndarray, rows: np.ndarray, classes: int) -> list[np.ndarray]:
    """These rows, for each class, ascending."""
    order = rows[np.argsort(labels[rows], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(labels[rows], minlength=classes))[:-1])


def repeats(hands: list[Hand]) -> Iterator[str]:
    """One sentence for each part in which a client holds an image more than once."""
    for name, part in (("training", 0), ("test", 1)):
        twice = [client for client, hand in enumerate(hands) if len(np.unique(hand[part])) < len(hand[part])]
        if twice:
            yield (
                f"{len(twice)} clients (the first: {twice[0]}) hold some {name} images more than once, "
                "because their share of a class is larger than the class"
            )


# -- validation --------------------------------------------------------------------------------------------------------


def client_rows(hand: Hand, labels: np.ndarray, share: float, rng: np.random.Generator) -> ClientRows:
    train, test = hand
    val = held_out(train, labels, share, rng)
    chosen = np.isin(train, val)
    return ClientRows(np.sort(train[~chosen]), np.sort(train[chosen]), np.sort(test))


def held_out(rows: np.ndarray, labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A client's validation rows: round(share * n) of its n different images, at least 1 and at most n - 1 of them.

    None where share is 0 or n is 1. The classes keep their proportions up to rounding (largest remainder; ties to a
    random class). An image that the client holds more than once goes to one side with all its copies.
    """
    rows = np.unique(rows)
    if share == 0 or len(rows) < 2:
        return rows[:0]
    count = min(max(1, int(share * len(rows) + 0.5)), len(rows) - 1)
    pools = [rows[labels[rows] == label] for label in np.unique(labels[rows])]
    counts = proportional(np.array([len(pool) for pool in pools]), count, rng)
    return np.concatenate([rng.permutation(pool)[:k] for pool, k in zip(pools, counts, strict=True)])


def proportional(sizes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers that add up to count and are proportional to sizes up to rounding, by largest remainder."""
    exact = sizes * count  # in units of 1 / sum(sizes): remainders stay whole and compare exactly
    counts, remainders = np.divmod(exact, sizes.sum())
    order = np.lexsort((rng.permutation(len(sizes)), -remainders))
    counts[order[: count - counts.sum()]] += 1
    return counts


# -- schemes -----------------------------------------------------------------------------------------------------------


def iid(pools: Pools, options: PartitionConfig, rng: np.random.Generator) -> list[Hand]:
    """Both parts shuffled and cut into equal pieces (sizes differ by one at most); every image is dealt once."""
    train, test = (shuffled_pieces(np.concatenate(part), options.clients, rng) for part in (pools.train, pools.test))
    check_enough(sum(map(len, train)), options, "training")
    check_enough(sum(map(len, test)), options, "test")
    return list(zip(train, test, strict=True))


def shuffled_pieces(rows: np.ndarray, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    return np.array_split(rng.permutation(rows), count)


def check_enough(images: int, options: PartitionConfig, part: str, each: int = 1) -> None:
    """Raises ConfigError where disjoint clients cannot have `each` images."""
    if images < options.clients * each:
        raise ConfigError(
            f"partition {options.name}: {options.clients} clients with at least {each} {part} image(s) each need "
            f"{options.clients * each}, there are {images}; lower partition.clients"
        )


def shards(pools: Pools, options: PartitionConfig, rng: np.random.Generator) -> list[Hand]:
    """`classes` classes per client; a class is cut evenly among its holders, each of whom keeps `images` of its piece.

    Train and test part go by the same classes; no image is held twice. The protocol of LotteryFL, FedSelect and
    CO-PFL, without clients that draw one class twice.
    """
    holdings = deal_classes(pools.classes, options, rng)
    train = cut_classes(pools.train, holdings, options.images, "training", rng)
    test = cut_classes(pools.test, holdings, options.test_images, "test", rng)
    return list(zip(train, test, strict=True))


def deal_classes(classes: int, options: PartitionConfig, rng: np.random.Generator) -> np.ndarray:
    """Different classes for each client, int64 [clients, classes per client]; every class equally often, up to one."""
    check_classes(classes, options)
    slots = options.clients * options.classes
    deck = np.concatenate(
        [np.repeat(np.arange(classes), slots // classes), rng.permutation(classes)[: slots % classes]]
    )
    holdings = rng.permutation(deck).reshape(options.clients, options.classes)
    for client in range(options.clients):
        while (double := doubled(holdings[client])) is not None:
            swap(holdings, client, double, rng)
    return holdings


def check_classes(classes: int, options: PartitionConfig) -> None:
    if options.classes > classes:
        raise ConfigError(
            f"partition.classes = {options.classes}: the data set has {classes} classes; at most that many per client"
        )


def doubled(row: np.ndarray) -> int | None:
    """The first position whose class occurs earlier in the row."""
    return next((i for i in range(1, len(row)) if row[i] in row[:i]), None)


def swap(holdings: np.ndarray, client: int, slot: int, rng: np.random.Generator) -> None:
    """Exchange a doubled class with a client that lacks it, so that the table has fewer doubles than before.

    Such a client exists, because no class has more slots than there are clients; and it has a slot to give: one whose
    class the first client lacks, or else a double of its own.
    """
    lacking = np.flatnonzero((holdings != holdings[client, slot]).all(axis=1))
    other = rng.choice(lacking)
    row = holdings[other]
    fresh = [i for i in range(len(row)) if row[i] not in holdings[client]]
    give = rng.choice(fresh) if fresh else doubled(row)
    holdings[client, slot], holdings[other, give] = holdings[other, give], holdings[client, slot]


def cut_classes(
    pools: list[np.ndarray], holdings: np.ndarray, keep: int | None, part: str, rng: np.random.Generator
) -> list[np.ndarray]:
    """Each class in even pieces for its holders; `keep` of each piece, or all."""
    hands: list[list[np.ndarray]] = [[] for _ in holdings]
    for label, pool in enumerate(pools):
        holders = rng.permutation(np.flatnonzero((holdings == label).any(axis=1)))
        if not len(holders):
            continue
        check_pieces(label, len(pool), len(holders), keep, part)
        for client, piece in zip(holders, shuffled_pieces(pool, len(holders), rng), strict=True):
            hands[client].append(piece[:keep])
    return [np.concatenate(hand) for hand in hands]


def check_pieces(label: int, images: int, holders: int, keep: int | None, part: str) -> None:
    each = keep or 1
    if images < holders * each:
        key = "partition.images" if part == "training" else "partition.test_images"
        raise ConfigError(
            f"partition shards: class {label} has {images} {part} images, and {holders} clients x {each} need "
            f"{holders * each}; lower {key}, partition.clients or partition.classes"
        )


def pathological(pools: Pools, options: PartitionConfig, rng: np.random.Generator) -> list[Hand]:
    """`classes` random classes per client; `train_size` and `test_size` images in equal parts of them.

    Clients draw independently of each other and may share images; within a client every image is another. The protocol
    of FedCAC (ICCV 2023, section 4.1).
    """
    check_classes(pools.classes, options)
    holdings = [rng.permutation(pools.classes)[: options.classes] for _ in range(options.clients)]
    train = [draw_equal(pools.train, held, options.train_size, "train", rng) for held in holdings]
    test = [draw_equal(pools.test, held, options.test_size, "test", rng) for held in holdings]
    return list(zip(train, test, strict=True))


def draw_equal(pools: list[np.ndarray], held: np.ndarray, size: int, part: str, rng: np.random.Generator) -> np.ndarray:
    """size images in equal parts of these classes; the first ones give one more where it does not come out even."""
    counts = np.full(len(held), size // len(held))
    counts[: size % len(held)] += 1
    if not counts[-1]:
        raise ConfigError(
            f"partition.{part}_size = {size}: a client has {len(held)} classes; at least one image of each"
        )
    for label, count in zip(held, counts, strict=True):
        if len(pools[label]) < count:
            raise ConfigError(
                f"partition pathological: class {label} has {len(pools[label])} {part} images, a client needs {count} "
                f"of it ({size} of {len(held)} classes); lower partition.{part}_size"
            )
    return np.concatenate([rng.choice(pools[c], count, replace=False) for c, count in zip(held, counts, strict=True)])


def dirichlet(pools: Pools, options: PartitionConfig, rng: np.random.Generator) -> list[Hand]:
    """Each class is cut among all clients in proportions drawn from Dirichlet(alpha); every image is dealt once.

    The test part is cut in the same proportions. Drawn again, at most `max_draws` times, until every client has
    `min_images` training images (validation included) and a test image.
    """
    check_enough(sum(map(len, pools.train)), options, "training", options.min_images)
    check_enough(sum(map(len, pools.test)), options, "test")
    sizes = [np.array([len(pool) for pool in part]) for part in (pools.train, pools.test)]
    for _ in range(options.max_draws):
        shares = rng.dirichlet(np.full(options.clients, options.alpha), size=pools.classes)  # [classes, clients]
        train, test = (cuts(shares, size) for size in sizes)
        if held(train, sizes[0]).min() >= options.min_images and held(test, sizes[1]).min() >= 1:
            return list(zip(cut(pools.train, train, rng), cut(pools.test, test, rng), strict=True))
    raise ConfigError(
        f"partition dirichlet: none of {options.max_draws} draws with alpha {options.alpha} gave each of "
        f"{options.clients} clients {options.min_images} training images and a test image; raise partition.alpha, "
        "lower partition.min_images or partition.clients, or raise partition.max_draws"
    )


def cuts(shares: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where each class is cut, int64 [classes, clients - 1]. shares: [classes, clients]; sizes: images [classes]."""
    return (np.cumsum(shares, axis=1)[:, :-1].clip(0, 1) * sizes[:, None]).astype(np.int64)


def held(cut_at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Images of each client when the classes are cut there, int64 [clients]."""
    return np.diff(cut_at, axis=1, prepend=0, append=sizes[:, None]).sum(axis=0)


def cut(pools: list[np.ndarray], cut_at: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The rows of each client when the shuffled classes are cut there."""
    pieces = [np.split(rng.permutation(pool), where) for pool, where in zip(pools, cut_at, strict=True)]
    return [np.concatenate(own) for own in zip(*pieces, strict=True)]


def dirichlet_fixed(pools: Pools, options: PartitionConfig, rng: np.random.Generator) -> list[Hand]:
    """Each client draws class proportions from Dirichlet(alpha) and then `train_size` and `test_size` images by them.

    Clients draw independently of each other and may share images; only where a client wants more of a class than there
    is does it hold images twice. The protocol of FedCAC (ICCV 2023, section 4.1) with alpha per class.
    """
    check_no_class_empty(pools)
    shares = rng.dirichlet(np.full(pools.classes, options.alpha), size=options.clients)  # [clients, classes]
    train = [draw_counts(pools.train, fixed_counts(share, options.train_size), rng) for share in shares]
    test = [draw_counts(pools.test, fixed_counts(share, options.test_size), rng) for share in shares]
    return list(zip(train, test, strict=True))


def check_no_class_empty(pools: Pools) -> None:
    for part, rows in (("training", pools.train), ("test", pools.test)):
        empty = [label for label, pool in enumerate(rows) if not len(pool)]
        if empty:
            raise ConfigError(f"partition dirichlet-fixed: class {empty[0]} has no {part} image, a client may draw it")


def fixed_counts(shares: np.ndarray, size: int) -> np.ndarray:
    """Images per class that add up to size: rounded class by class while any are left, the last takes the rest."""
    counts = np.zeros(len(shares), np.int64)
    for label, share in enumerate(shares[:-1]):
        counts[label] = min(int(size * share + 0.5), size - counts.sum())
    counts[-1] = size - counts.sum()
    return counts


def draw_counts(pools: list[np.ndarray], counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """So many images of each class, all different unless there are too few."""
    draws = [rng.choice(pool, k, replace=k > len(pool)) for pool, k in zip(pools, counts, strict=True) if k]
    return np.concatenate(draws)


SCHEMES: dict[str, Callable[[Pools, PartitionConfig, np.random.Generator], list[Hand]]] = {
    "iid": iid,
    "shards": shards,
    "pathological": pathological,
    "dirichlet": dirichlet,
    "dirichlet-fixed": dirichlet_fixed,
}
