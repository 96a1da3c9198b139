"""What every partition promises, for any data and any request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from fedbench.data.partitions.assignment import apportion, draw_distinct, random_ranks, random_stream
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.scheme import load
from fedbench.errors import ConfigError

SCHEMES = ["iid", "shards", "pathological", "dirichlet", "dirichlet-fixed", "practical", "domain", "domain-shards"]
DISJOINT = ["iid", "shards", "dirichlet", "practical", "domain", "domain-shards"]
POOLING = ["dirichlet", "practical"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@st.composite
def datasets(draw) -> Dataset:
    """Up to six classes with up to 60 images each, in any order within a part; perhaps up to four domains."""
    classes, domains = draw(st.integers(1, 6)), draw(st.sampled_from([0, 0, 1, 2, 4]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    parts = []
    for most in (60, 30):
        counts = draw(st.lists(st.integers(0, most), min_size=classes, max_size=classes).filter(any))
        parts.append(rng.permutation(np.repeat(np.arange(classes), counts)))
    labels, names = np.concatenate(parts), tuple("abcd"[:domains])
    of_row = rng.integers(0, domains, len(labels)) if domains else None
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    return Dataset("any", images, labels, of_row, "classification", classes, (), names, len(parts[0]), (0.0,), (1.0,))


@st.composite
def corrupted(draw) -> Dataset:
    """Up to 80 photographs of up to four classes under up to five corruptions, with or without a test part."""
    classes, kinds, count = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(8, 80))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    photographs, cut = rng.integers(0, classes, count), draw(st.sampled_from([0, count // 2, count]))
    parts = (photographs[:cut], photographs[cut:])
    labels = np.concatenate([np.tile(part, kinds) for part in parts])
    domains = np.concatenate([np.repeat(np.arange(kinds), len(part)) for part in parts])
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    names = tuple("abcde"[:kinds])
    return Dataset(
        "corrupted", images, labels, domains, "classification", classes, (), names, kinds * cut, (0.0,), (1.0,)
    )


def requests(names: list[str], **fixed) -> st.SearchStrategy[Config]:
    options = {
        "name": st.sampled_from(names),
        "clients": st.integers(1, 12),
        "classes": st.integers(1, 5),
        "deal": st.sampled_from(["even", "shuffled", "random"]),
        "images": st.none() | st.integers(1, 12),
        "test_images": st.none() | st.integers(1, 5),
        "reuse": st.just(False),
        "alpha": st.floats(0.01, 100),
        "min_images": st.integers(1, 5),
        "train_size": st.none() | st.integers(1, 60),
        "test_size": st.none() | st.integers(1, 20),
        "total": st.none() | st.integers(1, 200),
        "test": st.sampled_from(["auto", "part", "pooled", "drawn"]),
        "test_share": st.sampled_from([0.1, 0.25, 0.5]),
        "max_draws": st.just(20),
    } | {key: st.just(value) for key, value in fixed.items()}
    return st.builds(
        lambda partition, val, public: Config(partition=partition, data={"val": val}, public=public),
        st.fixed_dictionaries(options),
        st.sampled_from([0.0, 0.1, 0.5, 0.95]),
        st.fixed_dictionaries(
            {"size": st.integers(0, 20), "balance": st.sampled_from(["classes", "domains", "dirichlet", "none"])}
        ),
    )


def dealt(dataset: Dataset, config: Config, seed: int) -> Partition | None:
    """The partition, or None for a request that is refused in one line with its numbers."""
    try:
        return partition(dataset, config, seed)
    except ConfigError as error:
        text = str(error)
        assert "\n" not in text
        assert "does not support it; use part or pooled" in text or any(character.isdigit() for character in text)
        return None


def keeps_parts(config: Config) -> bool:
    asked = config.partition.test
    return asked in ("part", "drawn") or (asked == "auto" and config.partition.name not in POOLING)


@settings(max_examples=300)
@given(datasets(), requests(SCHEMES), st.integers(0, 2**31))
def test_parts_stay_in_their_part_and_apart(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    public = found.public if found.public is not None else np.empty(0, np.int64)
    assert len(public) == len(np.unique(public)) == config.public.size
    assert (public < dataset.train_rows).all()
    assert len(found.clients) == config.partition.clients
    for client in found.clients:
        for rows in (client.train, client.val, client.test):
            assert not np.isin(rows, public).any(), "no public image"
            assert (np.diff(rows) >= 0).all(), "ascending"
            assert rows.dtype == np.int64
        assert not np.intersect1d(np.concatenate([client.train, client.val]), client.test).size, "no test image"
        assert not np.intersect1d(client.train, client.val).size
        assert len(client.train), "nobody is without training images"
        assert len(client.test), "nor without test images"
        if keeps_parts(config):
            assert (np.concatenate([client.train, client.val]) < dataset.train_rows).all()
            assert (client.test >= dataset.train_rows).all()


@settings(max_examples=200)
@given(datasets(), requests(["shards", "domain-shards"], reuse=True), st.integers(0, 2**31))
def test_images_that_are_reused_stay_in_their_part_and_are_held_once_by_a_client(dataset, config, seed):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    own = [np.concatenate([client.train, client.val]) for client in found.clients]
    assert not np.intersect1d(np.concatenate(own), np.concatenate([c.test for c in found.clients])).size
    for rows in (*own, *(client.test for client in found.clients)):
        assert len(np.unique(rows)) == len(rows)


@settings(max_examples=200)
@given(datasets(), requests(DISJOINT), st.integers(0, 2**31))
def test_disjoint_schemes_deal_no_image_twice(dataset: Dataset, config: Config, seed: int):
    options, found = config.partition, dealt(dataset, config, seed)
    if found is None:
        return
    train = np.concatenate([rows for c in found.clients for rows in (c.train, c.val)])
    test = np.concatenate([c.test for c in found.clients])
    assert len(np.unique(train)) == len(train)
    assert not np.intersect1d(train, test).size, "nobody is tested on what another trains on"
    if options.test == "drawn":
        return
    assert len(np.unique(test)) == len(test)
    capped = options.train_size or options.test_size if options.name in ("iid", "domain") else "shards" in options.name
    if not capped and options.total is None:
        assert len(train) + len(test) == len(dataset.labels) - config.public.size, "and leave none out"
    if not capped and options.total is not None and not keeps_parts(config):
        assert len(train) + len(test) == options.total
    if not capped and options.total is not None and keeps_parts(config):
        assert len(train) == options.total


@settings(max_examples=200)
@given(datasets(), requests(["shards"], deal="even", test="part", total=None), st.integers(0, 2**31))
def test_shards_have_exact_counts_or_are_impossible(dataset: Dataset, config: Config, seed: int):
    config.public.size, options = 0, config.partition
    found = dealt(dataset, config, seed)
    slots = options.clients * options.classes
    most = -(-slots // dataset.classes)  # holders of a class, rounded up
    scarcest = [
        np.bincount(labels, minlength=dataset.classes).min()
        for labels in (dataset.labels[: dataset.train_rows], dataset.labels[dataset.train_rows :])
    ]
    enough = scarcest[0] >= most * (options.images or 1) and scarcest[1] >= most * (options.test_images or 1)
    if options.classes <= dataset.classes and enough:
        assert found is not None, "a request that can be met is met"
    for client in found.clients if found else []:
        train = dataset.labels[np.concatenate([client.train, client.val])]
        counts, tests = (np.bincount(part, minlength=dataset.classes) for part in (train, dataset.labels[client.test]))
        assert (counts > 0).sum() == (tests > 0).sum() == options.classes
        assert ((counts > 0) == (tests > 0)).all()
        assert options.images is None or set(counts) <= {0, options.images}
        assert options.test_images is None or set(tests) <= {0, options.test_images}


@settings(max_examples=200)
@given(datasets(), requests(["pathological", "dirichlet-fixed", "iid", "domain"]), st.integers(0, 2**31))
def test_fixed_sizes_are_exact(dataset: Dataset, config: Config, seed: int):
    options, found = config.partition, dealt(dataset, config, seed)
    usual = (500, 100) if options.name in ("pathological", "dirichlet-fixed") else (None, None)
    train, test = options.train_size or usual[0], options.test_size or usual[1]
    for client in found.clients if found else []:
        assert train is None or len(client.train) + len(client.val) == train
        assert test is None or len(client.test) == test
        if options.name == "pathological":
            assert len(np.unique(client.test)) == len(client.test)
            assert len(np.unique(client.train)) == len(client.train)


@settings(max_examples=150)
@given(datasets(), requests(POOLING, test="auto"), st.integers(0, 2**31))
def test_pooled_clients_have_their_share_of_test_images(dataset: Dataset, config: Config, seed: int):
    options, found = config.partition, dealt(dataset, config, seed)
    for client in found.clients if found else []:
        images = len(client.train) + len(client.val) + len(client.test)
        assert images >= options.min_images
        assert len(client.test) == int(images * options.test_share)


@settings(max_examples=150)
@given(datasets(), requests(["domain", "domain-shards"]), st.integers(0, 2**31))
def test_a_client_has_one_domain_and_all_domains_as_many_clients(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    each = config.partition.clients // len(dataset.domain_names)
    for number, client in enumerate(found.clients):
        rows = np.concatenate([client.train, client.val, client.test])
        assert set(dataset.domains[rows]) == {number // each}


@settings(max_examples=150)
@given(corrupted(), requests(["corruption"]), st.integers(0, 2**31))
def test_a_photograph_is_dealt_once_under_one_corruption(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    kinds = len(dataset.domain_names)
    order = np.argsort(dataset.domains, kind="stable").reshape(kinds, -1)
    photograph = np.empty(len(dataset.labels), np.int64)
    photograph[order] = np.arange(order.shape[1])
    held = [np.concatenate([c.train, c.val, c.test]) for c in found.clients]
    kind = [set(dataset.domains[rows].tolist()) for rows in held]
    assert all(len(one) == 1 for one in kind)
    shared = np.bincount([one.pop() for one in kind], minlength=kinds)
    assert shared.max() - shared.min() <= 1
    photographs = photograph[np.concatenate(held)]
    assert len(np.unique(photographs)) == len(photographs)
    if found.public is not None:
        assert not np.isin(photographs, photograph[found.public]).any()


@settings(max_examples=100)
@given(datasets(), requests(SCHEMES), st.integers(0, 2**31))
def test_validation_has_its_share_and_changes_nothing_else(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    share = config.data.val
    whole = partition(dataset, config.model_copy(update={"data": config.data.model_copy(update={"val": 0.0})}), seed)
    image = load(config.partition.name).image(SamplePool.of(dataset))
    holders = np.bincount(np.concatenate([np.unique(image[client.train]) for client in whole.clients]))
    train, val = (image[np.concatenate([getattr(one, part) for one in found.clients])] for part in ("train", "val"))
    assert not np.isin(val, train).any(), "no client validates on what another one trains on"
    for client, before in zip(found.clients, whole.clients, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([client.train, client.val])), before.train)
        np.testing.assert_array_equal(client.test, before.test)
        images = len(np.unique(before.train))
        expected = 0 if share == 0 or images < 2 else min(max(1, int(share * images + 0.5)), images - 1)
        if holders.max(initial=0) > 1:
            alone = np.unique(before.train[holders[image[before.train]] == 1])
            held_alone = np.isin(alone, client.val).sum()
            held_shared = len(np.unique(image[client.val])) - held_alone
            different = len(np.unique(image[before.train]))
            assert len(np.unique(image[client.val])) < max(2, different)
            wanted = 0 if share == 0 or different < 2 else min(max(1, int(share * different + 0.5)), different - 1)
            assert held_alone == min(len(alone), max(0, wanted - held_shared)) or held_alone + held_shared == 0
            continue
        assert len(np.unique(client.val)) == expected
        counts, held = (
            np.bincount(dataset.labels[np.unique(rows)], minlength=dataset.classes)
            for rows in (before.train, client.val)
        )
        assert np.abs(held - counts * expected / images).max() < 1, "classes in proportion, up to rounding"


@settings(max_examples=100)
@given(datasets(), requests(SCHEMES), st.integers(0, 2**31))
def test_the_same_request_gives_the_same_partition(dataset: Dataset, config: Config, seed: int):
    np.random.seed(seed % 1000)
    first = dealt(dataset, config, seed)
    np.random.seed(1)
    second = dealt(dataset, config, seed)
    assert (first and first.fingerprint()) == (second and second.fingerprint())


@settings(max_examples=100)
@given(datasets(), requests(["iid", "shards", "dirichlet-fixed"]), st.integers(0, 2**31), st.integers(0, 20))
def test_a_smaller_public_set_from_a_reserve_changes_no_client(dataset, config, seed, less):
    config.public.size, config.public.reserve, config.public.balance = 20, 20, "classes"
    whole = dealt(dataset, config, seed)
    config.public.size = max(1, 20 - less)
    part = dealt(dataset, config, seed)
    assert (whole is None) == (part is None)
    if whole and part:
        assert np.isin(part.public, whole.public).all()
        for one, other in zip(whole.clients, part.clients, strict=True):
            np.testing.assert_array_equal(one.train, other.train)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 50)), min_size=1, max_size=30), st.integers(0, 99))
def test_choices_are_in_range_and_differ_where_they_can(groups, seed):
    sizes, counts = np.array(groups).T
    found = np.split(draw_distinct(sizes, counts, random_stream(seed, "any")), np.cumsum(counts)[:-1])
    for numbers, size, count in zip(found, sizes, counts, strict=True):
        assert len(numbers) == count
        assert ((numbers >= 0) & (numbers < size)).all()
        assert count > size or len(np.unique(numbers)) == count


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 99))
def test_ranks_count_through_each_group(groups, seed):
    groups = np.array(groups, np.int64)
    found = random_ranks(groups, random_stream(seed, "any"))
    for group in np.unique(groups):
        assert sorted(found[groups == group]) == list(range((groups == group).sum()))


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any), min_size=1, max_size=5),
    st.integers(0, 50),
    st.integers(0, 99),
)
def test_apportioned_counts_add_up_and_are_within_one_of_exact(sizes, wanted, seed):
    owners = np.repeat(np.arange(len(sizes)), [len(own) for own in sizes])
    flat = np.concatenate([np.array(own) for own in sizes])
    counts = apportion(flat, owners, np.full(len(sizes), wanted), random_stream(seed, "any"))
    for owner, own in enumerate(sizes):
        mine = counts[owners == owner]
        assert mine.sum() == wanted
        assert np.abs(mine - np.array(own) * wanted / sum(own)).max() < 1
        assert (mine[np.array(own) == 0] == 0).all()
