"""Values that drawn test samples have alone, and training samples that they equal, are named with their number."""

import numpy as np
import pandas as pd

from fedbench.config import Config
from fedbench.data import Dataset, partition
from fedbench.data.partitions.sides import side_lines

ROWS = 40


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"age": rng.normal(size=ROWS), "job": ["cook"] * 38 + ["pilot", "nurse"], "label": [0, 1] * 19 + [2, 2]}
    )


def lines(table: pd.DataFrame, **options) -> tuple[Dataset, tuple[str, ...]]:
    config = Config(data={"name": table}, partition={"name": "iid", "clients": 2, **options})
    dataset = Dataset.of_run(config)
    return dataset, partition(dataset, config, 0).warnings


def test_categories_and_classes_of_the_last_samples_alone():
    _, said = lines(frame().assign(day=np.arange(ROWS)), test="last", order_by="day")
    assert "1 of 3 classes have no samples in the training part: 2" in said
    named = "3 features have one value in the training part and others in the test part: job=cook, job=nurse, job=pilot"
    assert named in said


def test_equal_samples_on_both_sides_are_counted():
    table = frame().assign(job="cook", label=[0, 1] * 20)
    dataset, said = lines(table)
    assert dataset.equal is None
    assert not any("number for number" in line for line in said)
    dataset, said = lines(pd.concat([table, table[:10]]))
    assert sorted(dataset.equal[:, 0].tolist()) == [*range(10), *range(40, 50)]
    train, test = np.arange(5, 45), np.r_[0:5, 45:50]
    assert [*side_lines(dataset, train, test)] == ["10 of 10 test samples are training samples too, number for number"]
    assert [*side_lines(dataset, np.arange(10, 40), np.arange(10))] == []
    assert sum("test samples are training samples too" in line for line in said) == 1
