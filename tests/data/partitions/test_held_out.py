"""How data of one part are split anew by every seed: by class, by whole groups, and in time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from fedbench.data.partitions.held_out import draw_by_class, draw_groups, held_out_sizes, last_of_each
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.scheme import with_client_count
from fedbench.errors import ConfigError
from tests.data.partitions.dealing import deal, refused
from tests.data.toys import FOUR, corrupted, labelled

HOSPITALS = 8
SEEDS = range(30)


def patients(order: str = "outcome", rows: int = 2000, positives: int = 113) -> Dataset:
    """A table of patients in hospitals, of whom few died, sorted by outcome, by date, or not at all; one part."""
    rng = np.random.default_rng(5)
    hospital, dates = rng.integers(0, HOSPITALS, rows), rng.permutation(rows)
    died = np.zeros(rows, np.int64)
    died[rng.choice(rows, positives, replace=False)] = 1
    rank = {"outcome": np.argsort(died, kind="stable"), "date": np.argsort(dates), "none": np.arange(rows)}[order]
    return table(died[rank], hospital[rank], order=dates[rank], groups=rng.integers(0, rows // 4, rows)[rank])


def table(labels, hospital=None, **more) -> Dataset:
    names = () if hospital is None else tuple(f"h{n}" for n in range(int(np.max(hospital)) + 1))
    labels = np.asarray(labels)
    features = np.arange(len(labels), dtype=np.float32)[:, None]
    return labelled(labels, hospital, names, len(labels), features, kind="feature", **more)


def held_rows(found: Partition) -> np.ndarray:
    return np.sort(np.concatenate([own.test for own in found.clients]))


def whole(own) -> np.ndarray:
    return np.concatenate([own.train, own.val, own.test])


@pytest.mark.parametrize("name", ["natural", "iid", "dirichlet", "practical", "domain"])
@pytest.mark.parametrize("order", ["outcome", "date", "none"])
def test_every_seed_has_test_samples_that_represent_the_whole(name, order):
    """With every fifth row of a table sorted by outcome, or by a period, they need not."""
    dataset, seen, counts = patients(order), [], []
    for seed in SEEDS:
        found = deal(dataset, seed, name=name, clients=HOSPITALS, alpha=10)
        seen.append(held_rows(found))
        counts.append(dataset.labels[seen[-1]].sum())
    sizes, share = [len(own) for own in seen], 113 / 2000
    assert 380 <= min(sizes) <= max(sizes) <= 420
    assert 15 <= min(counts) <= max(counts) <= 30, "113 / 5, up to rounding at every hospital"
    assert np.mean(counts) / np.mean(sizes) == pytest.approx(share, rel=0.05)
    assert len({own.tobytes() for own in seen}) == len(SEEDS), "other test rows in every seed"
    assert len(np.unique(np.concatenate(seen))) > 0.99 * 2000, "and all rows are for testing in some seed"


def test_classes_are_in_proportion_in_every_client_and_a_class_of_four_is_tested():
    labels, hospital = np.repeat([0, 1, 0, 1, 0, 1], [246, 4, 200, 50, 3, 2]), np.repeat([0, 1, 2], [250, 250, 5])
    for seed in SEEDS:
        found = deal(table(labels, hospital), seed, name="natural")
        counts = [np.bincount(labels[own.test], minlength=2).tolist() for own in found.clients]
        assert counts[:2] == [[49, 1], [40, 10]]
        assert sum(counts[2]) == 1


def test_a_class_with_less_than_half_a_sample_is_tested_in_some_seeds_as_often_as_any_other():
    labels = np.repeat([0, 1], [48, 2])
    times = np.zeros(50)
    for seed in range(400):
        times[deal(table(labels, np.zeros(50, np.int64)), seed, name="natural").clients[0].test] += 1
    assert abs(times[48:].mean() / 400 - 0.2) < 0.05
    assert abs(times[:48].mean() / 400 - 0.2) < 0.01
    assert times.min() > 40


def test_clients_of_two_samples_have_one_on_each_side_and_those_of_one_are_left_out():
    hospital = np.array([0, 0, 1, 2, 2, 2])
    found = deal(table([0, 1, 0, 1, 1, 1], hospital), val=0, name="natural")
    assert [(len(own.train), len(own.test)) for own in found.clients] == [(1, 1), (2, 1)]
    assert any("1 of 3 clients of the data are left out" in line for line in found.warnings)


def test_samples_without_classes_are_drawn_by_client_alone():
    numbers = replace(patients(), targets=np.linspace(0, 1, 2000, dtype=np.float32), classes=0, task="regression")
    means = [numbers.targets[held_rows(deal(numbers, seed, name="natural"))].mean() for seed in range(10)]
    assert abs(np.mean(means) - 0.5) < 0.02
    assert len(set(means)) == 10
    found = deal(numbers, name="natural")
    assert all(0.15 < len(own.test) / len(whole(own)) < 0.25 for own in found.clients)
    assert found.warnings[0].endswith("each seed draws 20% of every client's samples for testing")


def test_the_split_is_said_once_and_only_what_is_true():
    dataset = patients()

    def first(**options) -> str:
        return deal(dataset, **options).warnings[0]

    line = "the data have one part: each seed draws 20% of every client's samples for testing, by class"
    assert first(name="natural") == line == first(name="dirichlet", alpha=10)
    assert first(name="iid") == line.replace("every client's samples", "the samples")
    fixed = partition(dataset, Config(partition={"name": "natural", "seed": 3}), 0).warnings[0]
    assert fixed.startswith("the data have one part: partition.seed = 3 draws 20%")
    grouped = first(name="natural", test_by="patient", test_share=0.3)
    assert grouped.endswith("30% of the samples for testing, by class, whole groups of one patient together")
    assert "by date, are for testing, and the last of the rest for validation" in first(
        name="natural", test="last", order_by="date"
    )
    assert first(name="natural", test="last").endswith("for validation")
    assert "the parts of the data are merged: each seed draws" in deal(FOUR, name="iid", test="stratified").warnings[0]
    assert not any("each seed draws" in line for line in deal(FOUR, name="iid").warnings)


def test_sets_known_by_name_and_published_parts_keep_their_rule():
    known = replace(patients(), name="pamap2")
    found = deal(known, name="natural")
    assert found.warnings[0] == "the data set has no test part: 25% of its samples are held out for testing"
    assert deal(FOUR, name="natural").warnings == ()
    for asked, meaning, share in (
        ({"name": "natural"}, "stratified", 0.2),
        ({"name": "dirichlet", "test": "pooled"}, "pooled", 0.25),
        ({"name": "natural", "test": "last"}, "last", 0.2),
        ({"name": "natural", "test_share": 0.25}, "stratified", 0.25),
    ):
        resolved = with_client_count(Config(partition=asked).partition, SamplePool.of(patients()))
        assert (resolved.test, resolved.test_share) == (meaning, share)


@settings(max_examples=150)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["natural", "iid", "dirichlet", "practical", "pathological", "domain", "shards"]),
    st.integers(2, 300),
    st.sampled_from([0.1, 0.2, 0.5]),
    st.booleans(),
)
def test_no_group_is_on_both_sides_in_any_client_nor_in_training_and_validation(seed, name, groups, share, public):
    rng = np.random.default_rng(seed)
    labels, hospital = rng.integers(0, 3, 300), rng.integers(0, 3, 300)
    dataset = table(labels, hospital, groups=rng.integers(0, groups, 300))
    asked = {"name": name, "test_by": "patient", "test_share": share, "train_size": None, "alpha": 5}
    sized = {"clients": 3, "train_size": 20, "test_size": 5} if name == "pathological" else {"clients": 3}
    try:
        config = Config(partition=asked | sized, public={"size": 9 if public else 0})
        found = partition(dataset, config, seed)
    except ConfigError:
        return
    train, val, test = (
        set(dataset.groups[np.concatenate([getattr(own, part) for own in found.clients])].tolist())
        for part in ("train", "val", "test")
    )
    assert not train & test
    assert not val & test
    assert not train & val
    if public:
        assert not set(dataset.groups[found.public].tolist()) & test
    for own in found.clients:
        assert len(own.train)
        assert len(own.test)


def test_groups_keep_the_share_of_every_client_and_class():
    dataset = patients()
    for seed in range(10):
        found = deal(dataset, seed, name="natural", test_by="patient")
        assert all(0.15 < len(own.test) / len(whole(own)) < 0.25 for own in found.clients)
        assert 18 <= dataset.labels[held_rows(found)].sum() <= 28, "113 / 5 = 22.6"
    assert len({held_rows(deal(dataset, seed, name="natural", test_by="patient")).tobytes() for seed in range(5)}) == 5


def test_groups_are_drawn_so_that_every_owner_has_both_sides():
    rng = np.random.default_rng(0)
    owners, groups = np.repeat(np.arange(50), 4), np.arange(200) // 2  # two groups of two samples each
    held = draw_groups(groups, owners, np.zeros(200, np.int64), 0.2, rng)
    assert (np.bincount(owners, held) == 2).all()
    alone = draw_groups(np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros(4, np.int64), 0.2, rng)
    assert not alone.any(), "one group stays for training"
    stay = draw_groups(groups, owners, np.zeros(200, np.int64), 0.2, rng, stay=np.arange(0, 100, 2))
    assert not stay[np.isin(groups, np.arange(0, 100, 2))].any()


def test_the_domain_is_a_group_where_there_is_no_such_column():
    dataset = replace(patients(), groups=None)
    found = deal(dataset, name="iid", clients=4, test_by="domain")
    held = set(dataset.domains[held_rows(found)].tolist())
    trained = set(dataset.domains[np.concatenate([own.train for own in found.clients])].tolist())
    assert len(held) in (1, 2)
    assert not held & trained, "hospitals that nobody trains on"
    assert (
        "each of the 8 clients of the data has one domain, and a client needs one to train and one to test"
        in refused(dataset, name="natural", test_by="domain")
    )
    assert "partition.test_by = patient: the data have neither such a column nor domains" in refused(
        dataset, name="iid", test_by="patient"
    )


def test_with_a_test_part_groups_stay_together_in_validation_and_those_in_both_parts_are_counted():
    dataset = replace(patients(), train_rows=1500)
    found = deal(dataset, name="natural", test_by="patient", val=0.3)
    groups = [set(dataset.groups[own.train]) & set(dataset.groups[own.val]) for own in found.clients]
    assert not any(groups)
    both = len(np.intersect1d(dataset.groups[:1500], dataset.groups[1500:]))
    assert f"{both} of {len(np.unique(dataset.groups))} values of patient are in both parts" in found.warnings[0]
    assert (held_rows(found) >= 1500).all()


def test_the_last_fifth_of_every_client_in_time_is_for_testing_and_the_last_of_the_rest_for_validation():
    dataset = patients("outcome")
    found = deal(dataset, name="natural", test="last", order_by="date", val=0.1)
    for own in found.clients:
        times = [dataset.order[getattr(own, part)] for part in ("train", "val", "test")]
        assert times[0].max() < times[1].min() < times[1].max() < times[2].min()
        assert len(own.test) == int(0.2 * len(whole(own)) + 0.5)
    assert (
        held_rows(found).tolist() == held_rows(deal(dataset, 9, name="natural", test="last", order_by="date")).tolist()
    )


def test_without_a_column_the_order_of_rows_counts():
    dataset = replace(patients(), order=None)
    found = deal(dataset, name="natural", test="last")
    for number, own in enumerate(found.clients):
        rows = np.flatnonzero(dataset.domains == number)
        assert own.test.tolist() == rows[-len(own.test) :].tolist()
    everyone = deal(replace(dataset, domains=None, domain_names=()), name="iid", clients=4, test="last")
    assert held_rows(everyone).tolist() == list(range(1600, 2000))


def test_what_overlaps_the_cut_is_left_out_and_equal_times_stay_together():
    owners, times = np.zeros(10, np.int64), np.arange(10) * 2
    held, overlapping = last_of_each(owners, times, extent=4, share=0.2)
    assert np.flatnonzero(held).tolist() == [8, 9]
    assert np.flatnonzero(overlapping).tolist() == [7], "from 14 to 18, and the first test sample begins at 16"
    assert not last_of_each(owners, times, 2, 0.2)[1].any(), "side by side"
    days = np.array([1, 1, 2, 2, 2, 3, 3, 3, 3, 3])
    assert np.flatnonzero(last_of_each(owners, days, 0, 0.2)[0]).tolist() == [5, 6, 7, 8, 9]
    assert np.flatnonzero(last_of_each(owners, days, 0, 0.7)[0]).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert not last_of_each(owners, np.zeros(10, np.int64), 0, 0.2)[0].any(), "one time cannot be cut"
    windows = replace(patients("date"), order=np.arange(2000), extent=30)
    found = deal(windows, name="natural", test="last", val=0.1)
    assert any(
        "training samples are left out, because they overlap the first for validation" in w for w in found.warnings
    )
    for own in found.clients:
        assert own.train.max() + 30 <= own.val.min()
        assert own.val.max() + 30 <= own.test.min()


def test_one_line_says_which_keys_do_not_go_together():
    dataset = patients()
    assert "set partition.test last" in refused(dataset, name="natural", order_by="date")
    for test in ("last", "pooled", "drawn"):
        line = refused(dataset, name="dirichlet", test_by="patient", test=test)
        assert f"partition.test = {test} does not keep groups whole; take stratified" in line
    alone = replace(dataset, groups=dataset.domains // 2)
    assert "each of the 8 clients of the data has one patient" in refused(alone, name="natural", test_by="patient")


def test_a_client_whose_groups_are_those_of_others_is_named_if_it_cannot_have_both_sides():
    hospital = np.repeat([0, 1, 2], 4)
    groups = np.array([0, 0, 1, 1, 1, 1, 2, 2, 0, 0, 2, 2])  # a triangle: no choice gives everyone both sides
    line = refused(table([0, 1] * 6, hospital, groups=groups), name="natural", test_by="patient")
    assert "0 test samples, because samples of one patient stay together" in line or "0 training samples" in line
    assert "(h" in line


def test_photographs_under_corruptions_are_split_together():
    dataset = corrupted(photographs=200, kinds=3, test=0)
    found = deal(dataset, name="corruption", clients=3, classes=2)
    photographs = [
        set((np.concatenate([getattr(own, p) for own in found.clients]) % 200).tolist()) for p in ("train", "test")
    ]
    assert not photographs[0] & photographs[1]
    assert "the copies of a photograph under 3 corruptions differ in the column of partition.test_by" in refused(
        replace(dataset, groups=np.arange(600)), name="corruption", clients=3, classes=2, test_by="patient"
    )


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 5), st.integers(1, 6), st.floats(0.01, 0.9))
def test_cells_are_their_share_rounded_up_or_down_or_one(seed, rows, owners, classes, share):
    rng = np.random.default_rng(seed)
    own, labels = rng.integers(0, owners, rows), rng.integers(0, classes, rows)
    held = draw_by_class(own, labels, share, rng)
    sizes = np.bincount(own)
    wanted = held_out_sizes(sizes, share)
    assert np.bincount(own, held, len(sizes)).astype(int).tolist() == wanted.tolist()
    for owner in np.unique(own):
        for label in np.unique(labels[own == owner]):
            cell = (own == owner) & (labels == label)
            quota = cell.sum() * wanted[owner] / sizes[owner]
            assert held[cell].sum() == pytest.approx(quota, abs=2)


def test_the_same_seed_gives_the_same_rows():
    for options in ({}, {"test_by": "patient"}, {"test": "last", "order_by": "date"}):
        first, again = (deal(patients(), 4, name="natural", **options) for _ in range(2))
        assert first.fingerprint() == again.fingerprint()


def test_newcomers_and_public_samples_have_nothing_of_the_others():
    dataset = patients()
    found = deal(dataset, name="natural", new_clients=2, public=40)
    held = [row for own in (*found.clients, *found.newcomers) for row in whole(own)]
    assert len(held) == len(set(held)) == 1960
    assert not np.isin(found.public, held).any()
    assert (len(found.clients), len(found.newcomers)) == (6, 2)
