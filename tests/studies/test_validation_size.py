"""Whether validation can choose between points."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data.partitions import partition
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.studies.validation_size import doubts_of_validation, require_validation


def said(rare: int, points: int, **config) -> list[str]:
    """What is said of 400 samples at four clients, of which so many are positive."""
    targets = np.zeros(400, int)
    targets[np.linspace(0, 399, rare).astype(int)] = 1
    data = {"name": (np.random.default_rng(0).normal(size=(400, 5)).astype("f4"), targets), "val": 0.2}
    asked = Config(data=data, partition={"name": "iid", "clients": 4, "test": "pooled"}, model="mlp", **config)
    run = resolve(asked)
    return list(doubts_of_validation(run, partition(run.dataset, run.config, 0), points))


def test_few_positives_between_many_points_are_said():
    (line,) = said(40, 7)
    assert line.split(" among ")[0] in {f"{count} positives" for count in (5, 6, 7)}
    assert "validation samples of all clients choose between 7 candidates" in line
    assert "raise --data.val, or try fewer candidates" in line
    assert said(200, 2) == []
    assert said(40, 1) == []


@pytest.mark.parametrize(("metric", "count"), [("accuracy", 0), ("auroc", 1)])
def test_the_rarest_of_many_classes_counts_where_the_metric_is_by_class(metric, count):
    run = resolve(Config(model="mlp", evaluate={"metric": metric}))
    lines = list(doubts_of_validation(run, partition(run.dataset, run.config, 0), 6))
    assert len(lines) == count
    assert all("of the rarest class among" in line for line in lines)


def test_without_a_validation_split_there_is_nothing_to_choose_by():
    require_validation(Config())
    with pytest.raises(ConfigError, match=r"data\.val = 0"):
        require_validation(Config(data={"val": 0}))
