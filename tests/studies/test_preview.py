"""What the page of a data set counts and shows of it."""

from dataclasses import replace

import numpy as np

from fedbench.config import Config
from fedbench.data import Dataset, partition
from fedbench.studies.preview import (
    BINS,
    PER_CLASS,
    TargetGroups,
    describe_dataset,
    domain_table,
    partition_table,
    sample_rows,
    spread_of_tiles,
    tiles,
)
from tests.data.toys import EVEN, FOUR

NUMBERS = Dataset(
    "numbers",
    np.zeros((40, 3), np.float32),
    np.linspace(-1, 3, 40, dtype=np.float32)[:, None],
    None,
    "regression",
    0,
    (),
    (),
    30,
    (0.0,) * 3,
    (1.0,) * 3,
    kind="feature",
)


def test_classes_are_counted_by_name_and_numbers_by_bins():
    classes, bins = TargetGroups.from_dataset(EVEN), TargetGroups.from_dataset(NUMBERS)
    assert classes.names == tuple("0123456789")
    assert classes.counts(slice(EVEN.train_rows)).tolist() == [100] * 10
    assert (bins.names[0], bins.names[-1], len(bins.names)) == ("-1 to -0.6", "2.6 to 3", BINS)
    assert bins.counts(slice(None)).tolist() == [4] * BINS  # the largest number is in the last bin


def test_what_is_said_of_a_data_set_fits_its_kind():
    assert described(FOUR) == "1,680 grey images of 2 × 2 pixels, 10 classes in 4 domains"
    assert described(NUMBERS) == "40 samples of 3 features, regression of 1 number"
    assert [tile[:2] for tile in tiles(NUMBERS, TargetGroups.from_dataset(NUMBERS))][:3] == [
        ("30", "training samples"),
        ("10", "test samples"),
        ("1", "target numbers"),
    ]
    several = replace(NUMBERS, task="multilabel", targets=np.eye(40, 3, dtype=np.float32))
    assert described(several) == "40 samples of 3 features, 3 labels at once"
    assert TargetGroups.from_dataset(several).names == ("0 labels", "1 label")
    masks = replace(NUMBERS, task="segmentation", targets=np.zeros((40, 2, 2), np.int64), scores=3)
    assert described(masks) == "40 samples of 3 features, 3 scores at each position"
    assert TargetGroups.from_dataset(masks).counts(slice(None)).tolist() == [40]


def described(dataset: Dataset) -> str:
    return describe_dataset(dataset, TargetGroups.from_dataset(dataset))


def test_images_are_chosen_at_even_distances_and_of_every_domain():
    rows = np.arange(7, 100)
    assert spread_of_tiles(rows, 4).tolist() == [7, 37, 68, 99]
    assert spread_of_tiles(rows[:2], 4).tolist() == [7, 8]
    assert len(sample_rows(EVEN, rows)) == PER_CLASS
    shown = sample_rows(FOUR, np.flatnonzero(FOUR.labels == 3))
    assert np.bincount(FOUR.domains[shown]).tolist() == [PER_CLASS // 4] * 4
    assert set(FOUR.labels[shown]) == {3}


def test_domains_and_classes_are_counted_against_each_other():
    table = domain_table(FOUR, TargetGroups.from_dataset(FOUR))
    assert table.rows == ("art", "cartoon", "photo", "sketch")
    assert table.counts.tolist() == [[42] * 10] * 4
    assert table.right == ("300 + 120",) * 4
    assert domain_table(EVEN, TargetGroups.from_dataset(EVEN)) is None


def test_a_client_of_one_domain_bears_its_name():
    config = Config(partition={"name": "domain", "clients": 4}, data={"val": 0})
    dealt = partition(FOUR, config, 0)
    table = partition_table(FOUR, TargetGroups.from_dataset(FOUR), dealt)
    assert sorted(row.partition(", ")[2] for row in table.rows) == sorted(FOUR.domain_names)
    assert table.counts.tolist() == dealt.class_counts(FOUR.labels, 10).tolist()
    assert set(table.right) == {"300 + 0 + 120"}
