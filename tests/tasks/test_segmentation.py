"""A class at each pixel."""

from math import log, nan

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score

from fedbench.errors import ConfigError
from fedbench.tasks import mean_of
from fedbench.tasks.segmentation import TASK
from fedbench.tasks.targets import TargetError

STREAM = torch.Generator().manual_seed(0)
OUTPUTS, TARGETS = torch.randn(6, 4, 5, 3, generator=STREAM), torch.randint(0, 3, (6, 5, 3), generator=STREAM)


def score(outputs: torch.Tensor, targets: torch.Tensor, size: int = 4) -> dict:
    return TASK.score(list(zip(outputs.split(size), targets.split(size), strict=True)), torch.float32)


@pytest.mark.parametrize("size", [1, 4, 6])
@pytest.mark.parametrize("void", [-1, 255])
def test_scores_are_those_of_scikit_learn_over_the_pixels_that_count(size, void):
    targets = TARGETS.clone()
    targets[:2, 1:] = void
    found, counted = score(OUTPUTS, targets, size), targets != void
    true, predicted = targets[counted].numpy(), OUTPUTS.argmax(1)[counted].numpy()
    expected = jaccard_score(true, predicted, labels=[0, 1, 2], average=None)
    assert mean_of(found, "miou") == pytest.approx(expected.mean())  # class 3 does not occur
    for label, value in enumerate(expected):
        assert mean_of(found, f"miou/label={label}") == pytest.approx(value)
    assert "miou/label=3" not in found
    assert mean_of(found, "pixel_accuracy") == pytest.approx((true == predicted).mean())
    assert mean_of(found, "loss") == pytest.approx(float(TASK.loss(OUTPUTS, targets)))
    assert {weight for _, weight in found.values()} == {int(counted.sum())}


def test_on_paper():
    targets = torch.tensor([[[0, 0], [1, -1]]])
    outputs = torch.nn.functional.one_hot(torch.tensor([[[0, 1], [1, 0]]]), 2).movedim(3, 1).float() * log(3)
    found = score(outputs, targets)
    assert mean_of(found, "miou") == pytest.approx(1 / 2)  # 1 of 2 pixels of class 0, 1 of 2 of class 1
    assert found["pixel_accuracy"] == (2, 3)
    each = (2 * log(4 / 3) + log(4)) / 3  # three quarters for the predicted class
    assert float(TASK.loss(outputs, targets)) == pytest.approx(each)
    assert TASK.loss(outputs, targets, "none").tolist() == pytest.approx([each])


def test_where_no_pixel_counts_nothing_is_learnt_or_scored():
    nothing = torch.full_like(TARGETS, 255)
    assert score(OUTPUTS, nothing) == {}
    assert float(TASK.loss(OUTPUTS, nothing)) == 0


def test_outputs_that_are_no_numbers_predict_nothing():
    found = score(torch.full_like(OUTPUTS, nan), TARGETS)
    assert mean_of(found, "miou") == mean_of(found, "pixel_accuracy") == 0


def test_masks_keep_their_numbers():
    masks = np.array([[[0, 3], [255, 1]]], np.uint8)
    found = TASK.read_targets(masks)
    assert (found.values.tolist(), found.outputs, found.classes) == (masks.tolist(), 4, 0)
    assert TASK.read_targets(masks, names=tuple("abcdef")).names == tuple("abcdef")
    assert TASK.read_targets(masks, classes=300).outputs == 300  # 255 is a class like any other
    with pytest.raises(TargetError, match="class 3: 0 to 2 are classes, -1 and 255 do not count"):
        TASK.read_targets(masks, classes=3)
    with pytest.raises(ConfigError, match=r"masks; these are int64 \[\]"):
        TASK.read_targets(np.arange(3))


@pytest.mark.parametrize(("values", "seen"), [([0, 255], "0 and 255"), ([-1, 0], "-1 and 0"), ([0], "0")])
def test_masks_of_which_one_class_is_left_are_asked_about(values, seen):
    masks = np.resize(np.array(values), (3, 4, 4))
    with pytest.raises(ConfigError) as caught:
        TASK.read_targets(masks)
    line = str(caught.value)
    assert f"masks of {seen}: two classes (bring masks of 0 and 1, such as mask // 255)" in line
    assert "one class, where -1 and 255 do not count (--data.classes 1)?" in line
    assert TASK.read_targets(masks, classes=1).outputs == 1


def test_a_number_of_classes_alone_makes_no_class_of_255():
    masks = np.resize(np.array([0, 255]), (3, 4, 4))
    for declared in ({"classes": 2}, {"names": ("background", "object")}):
        with pytest.raises(ConfigError, match="masks of 0 and 255: two classes"):
            TASK.read_targets(masks, **declared)
    assert TASK.read_targets(np.zeros((3, 4, 4), int), classes=2).outputs == 2


@pytest.mark.parametrize("values", [[0, 100, 200], [0, 128], [0, 85, 170, 255]])
def test_masks_of_grey_levels_are_asked_about(values):
    masks = np.resize(np.array(values), (3, 4, 4))
    most = max(value for value in values if value != 255)
    with pytest.raises(
        ConfigError, match=f"masks of 0, .*: grey levels of as many classes .*--data.classes {most + 1}"
    ):
        TASK.read_targets(masks)
    assert TASK.read_targets(masks, classes=most + 1).outputs == most + 1
