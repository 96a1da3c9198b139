"""Arrays of images and labels as files hold them."""

import numpy as np
import pytest

from fedbench.data.reading.arrays import IMAGES_PER_BLOCK, array_blocks, checked_images, checked_labels
from fedbench.errors import ConfigError


def test_blocks_are_channel_first_with_labels_and_domains():
    images = np.zeros((IMAGES_PER_BLOCK + 1, 4, 5, 3), np.uint8)
    first, second = array_blocks(images, np.arange(IMAGES_PER_BLOCK + 1), domain=2)
    assert (first.samples.shape, second.samples.shape) == ((IMAGES_PER_BLOCK, 3, 4, 5), (1, 3, 4, 5))
    assert (second.targets.tolist(), second.domains.tolist()) == ([IMAGES_PER_BLOCK], [2])
    (grey,) = array_blocks(images[:2, :, :, 0], np.arange(2))
    assert (grey.samples.shape, grey.domains) == ((2, 1, 4, 5), None)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (np.zeros((2, 4, 4)), "images hold float64"),
        ([1], "images hold list"),
        (np.zeros((2, 4, 4, 2), np.uint8), "2 x 4 x 4 x 2"),
        (np.zeros((0, 4, 4), np.uint8), "0 x 4 x 4"),
    ],
)
def test_images_that_are_none(images, said):
    with pytest.raises(ConfigError, match=f"part: .*{said}"):
        checked_images("part", images)


def test_labels_start_at_nought_whatever_the_files_first_is():
    assert checked_labels("part", np.array([[1], [3]], np.uint8), 2, classes=3, first=1).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.array([0.0, 1.0]), "labels hold float64"),
        (np.array([0]), "labels of shape 1 for 2 images"),
        (np.array([0, 3]), "part, row 1: label 3 is outside the class range; 0 to 2"),
        (np.array([-1, 0]), "part, row 0: label -1"),
    ],
)
def test_labels_that_are_none(labels, said):
    with pytest.raises(ConfigError, match=said):
        checked_labels("part", labels, 2, classes=3)
