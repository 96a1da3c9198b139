"""What a score is a mean over is said in words."""

import pytest

from fedbench.config import Config
from fedbench.results.estimators import estimator, estimator_marks, estimator_remark
from fedbench.tasks import load

ACCURACY, ERROR = load("classification").primary, load("regression").primary
BATCHES = {"accuracy": "batches", "batch_size": 32}


@pytest.mark.parametrize(
    ("asked", "metric", "found"),
    [({}, ACCURACY, "samples"), (BATCHES, ACCURACY, "batches of 32"), (BATCHES, ERROR, "samples")],
)
def test_it_is_read_off_the_configuration(asked, metric, found):
    assert estimator(Config(evaluate=asked).model_dump(), metric) == found
    assert estimator({}, metric) == "samples"


def test_a_remark_where_it_is_not_samples_and_marks_where_rows_differ():
    assert estimator_remark(ACCURACY, []) == estimator_remark(ACCURACY, ["samples", "samples"]) == ""
    assert estimator_remark(ACCURACY, ["batches of 32"] * 2) == "accuracy as mean over batches of 32"
    assert "marked" in estimator_remark(ACCURACY, ["samples", "batches of 32"])
    assert estimator_marks(["batches of 32"] * 2) == ["", ""]
    assert estimator_marks(["samples", "batches of 32"]) == [" (mean over samples)", " (mean over batches of 32)"]
