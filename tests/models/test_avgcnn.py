"""AvgCnn has as many parameters as its papers say, at every size of image."""

import pytest
import torch

from tests.models.making import GREY, RGB, built, count, meta


@pytest.mark.parametrize(
    ("shape", "classes", "parameters"),
    [
        (RGB, 10, 878_538),
        (RGB, 100, 924_708),
        (GREY, 10, 582_026),
        (GREY, 62, 608_702),
        (GREY, 47, 601_007),
        (GREY, 11, 582_539),
        ((3, 64, 64), 200, 5_694_600),
        ((3, 84, 84), 100, 10_722_340),
    ],
)
def test_avgcnn(shape, classes, parameters):
    module = meta("avgcnn", shape, classes)
    assert count(module) == parameters
    assert count(module.head) == 513 * classes
    assert module(torch.zeros(2, *shape, device="meta")).shape == (2, classes)


def test_avgcnn_does_not_resize():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        built(0, "avgcnn", input_shape=(1, 32, 32))(torch.zeros(2, *GREY))
