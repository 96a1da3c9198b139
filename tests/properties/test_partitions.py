"""What every partition promises, for any data and any request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from fedbench.errors import ConfigError

SCHEMES = ["iid", "shards", "pathological", "dirichlet", "dirichlet-fixed"]
DISJOINT = ["iid", "shards", "dirichlet"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@st.composite
def datasets(draw) -> Dataset:
    """Up to six classes with up to 60 images each, in any order within a part."""
    classes = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    parts = []
    for most in (60, 30):
        counts = draw(st.lists(st.integers(0, most), min_size=classes, max_size=classes).filter(any))
        parts.append(rng.permutation(np.repeat(np.arange(classes), counts)))
    images = np.zeros((sum(map(len, parts)), 1, 1, 1), np.uint8)
    return Dataset("any", images, np.concatenate(parts), None, classes, (), (), len(parts[0]), (0.0,), (1.0,))


def requests(names: list[str]) -> st.SearchStrategy[Config]:
    options = st.fixed_dictionaries(
        {
            "name": st.sampled_from(names),
            "clients": st.integers(1, 12),
            "classes": st.integers(1, 5),
            "images": st.none() | st.integers(1, 12),
            "test_images": st.none() | st.integers(1, 5),
            "alpha": st.floats(0.01, 100),
            "min_images": st.integers(1, 5),
            "train_size": st.integers(1, 60),
            "test_size": st.integers(1, 20),
            "max_draws": st.just(20),
        }
    )
    return st.builds(
        lambda partition, val, public: Config(partition=partition, data={"val": val}, public={"size": public}),
        options,
        st.sampled_from([0.0, 0.1, 0.5, 0.95]),
        st.integers(0, 20),
    )


def dealt(dataset: Dataset, config: Config, seed: int) -> Partition | None:
    """The partition, or None for a request that is refused in one line with its numbers."""
    try:
        return partition(dataset, config, seed)
    except ConfigError as error:
        text = str(error)
        assert "\n" not in text
        assert any(character.isdigit() for character in text)
        return None


@settings(max_examples=300, deadline=None)
@given(datasets(), requests(SCHEMES), st.integers(0, 2**31))
def test_parts_stay_in_their_part_and_apart(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    public = found.public if found.public is not None else np.empty(0, np.int64)
    assert len(public) == config.public.size
    assert len(found.clients) == config.partition.clients
    for client in found.clients:
        for rows in (client.train, client.val):
            assert ((rows >= 0) & (rows < dataset.train_rows)).all(), "only training images"
            assert not np.isin(rows, public).any(), "no public image"
        assert ((client.test >= dataset.train_rows) & (client.test < len(dataset.labels))).all(), "only test images"
        assert not np.intersect1d(client.train, client.val).size
        assert len(client.train), "nobody is without training images"
        assert len(client.test), "nor without test images"
        assert all(rows.dtype == np.int64 for rows in (client.train, client.val, client.test))


@settings(max_examples=200, deadline=None)
@given(datasets(), requests(DISJOINT), st.integers(0, 2**31))
def test_disjoint_schemes_deal_no_image_twice(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    rows = np.concatenate([rows for c in found.clients for rows in (c.train, c.val, c.test)])
    assert len(np.unique(rows)) == len(rows)
    if config.partition.name != "shards":
        assert len(rows) == len(dataset.labels) - config.public.size, "and leave none out"


@settings(max_examples=200, deadline=None)
@given(datasets(), requests(["shards"]), st.integers(0, 2**31))
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


@settings(max_examples=200, deadline=None)
@given(datasets(), requests(["pathological", "dirichlet-fixed"]), st.integers(0, 2**31))
def test_fixed_sizes_are_exact(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    for client in found.clients if found else []:
        assert len(client.train) + len(client.val) == config.partition.train_size
        assert len(client.test) == config.partition.test_size
        if config.partition.name == "pathological":
            assert len(np.unique(client.test)) == len(client.test)
            assert len(np.unique(client.train)) == len(client.train)


@settings(max_examples=100, deadline=None)
@given(datasets(), requests(SCHEMES), st.integers(0, 2**31))
def test_validation_has_its_share_and_changes_nothing_else(dataset: Dataset, config: Config, seed: int):
    found = dealt(dataset, config, seed)
    if found is None:
        return
    share = config.data.val
    whole = partition(dataset, config.model_copy(update={"data": config.data.model_copy(update={"val": 0.0})}), seed)
    for client, before in zip(found.clients, whole.clients, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([client.train, client.val])), before.train)
        np.testing.assert_array_equal(client.test, before.test)
        images = len(np.unique(before.train))
        expected = 0 if share == 0 or images < 2 else min(max(1, int(share * images + 0.5)), images - 1)
        assert len(np.unique(client.val)) == expected


@settings(max_examples=100, deadline=None)
@given(datasets(), requests(SCHEMES), st.integers(0, 2**31))
def test_the_same_request_gives_the_same_partition(dataset: Dataset, config: Config, seed: int):
    np.random.seed(seed % 1000)
    first = dealt(dataset, config, seed)
    np.random.seed(1)
    second = dealt(dataset, config, seed)
    assert (first and first.fingerprint()) == (second and second.fingerprint())
