"""The third value is the user, unless it may be a target, a weight or the number of a row: then it is asked."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

from tests.data import loading
from tests.data.loading import load

ROWS = np.arange(12)
X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = ROWS % 2
BITS = (X > 0).astype(int)
FRAME = pd.DataFrame(X).rename(columns=str).assign(colour=["red", "blue"] * 6)


@pytest.mark.parametrize("users", [ROWS % 3, torch.tensor(ROWS % 3), ["bob", "ann", "eve"] * 4, pd.Series(ROWS % 3)])
def test_few_whole_numbers_or_texts_are_users(users):
    assert len(load((X, Y, users)).domain_names) == 3


@pytest.mark.parametrize("data", [(X, BITS, Y), TensorDataset(*map(torch.tensor, (X, BITS, Y))), (X, X[::-1], Y)])
def test_a_second_value_like_the_sample_may_be_a_part_of_it(data):
    line = loading.refused(load, data)
    assert ", item 0: of three values the second has the shape of the first, [4]: the target, and the third " in line
    assert 'or a part of the sample, and the third is the target (a dict {"x1": ..., "x2": ..., "label": ...})?' in line


def test_a_dict_or_the_task_says_what_the_values_are():
    found = load((X, BITS, Y), task="multilabel")
    named = load({"x": X, "label": BITS, "user": Y})
    assert (found.targets == BITS).all()
    assert (named.targets == BITS).all()
    assert found.domain_names == named.domain_names == ("0", "1")
    inputs = load({"x1": X, "x2": BITS, "label": Y})
    assert (inputs.labels == Y).all()
    assert not inputs.domain_names


@pytest.mark.parametrize(
    ("third", "line"),
    [
        (ROWS, "is another one in each of 12 rows: "),
        ([f"images/{row}.png" for row in ROWS], "is another one in each of 12 rows: "),
        (np.ones(12, int), "is 1 in all rows: the user of the sample "),
        (np.ones(12), "is a float, such as 1.0: the user of the sample "),
    ],
)
@pytest.mark.parametrize(("samples", "way"), [(X, "a dict"), (FRAME, "a column user of the frame")])
def test_numbers_of_rows_and_weights_are_no_users(samples, way, third, line):
    said = loading.refused(load, (samples, Y, third))
    assert f"the third value of (x, y, user) {line}" in said
    assert f"({way}" in said
    assert said.endswith("(leave it out)?")


def test_a_dict_may_have_any_users():
    assert len(load({"x": X, "label": Y, "user": ROWS}).domain_names) == 12
    assert load({"x": X, "label": Y, "user": np.ones(12)}).domain_names == ("1",)


def test_a_row_of_floats_before_a_class_may_be_a_part_of_the_sample():
    images, facts, labels = torch.rand(12, 1, 4, 4), torch.randn(12, 5), torch.tensor(Y)
    line = loading.refused(load, TensorDataset(images, facts, labels))
    assert ", item 0: of three values the second is a row of 5 floats: the target, and the third is the user" in line
    assert load(TensorDataset(images, facts, labels), task="regression").domain_names == ("0", "1")
    one_hot = torch.eye(3)[torch.tensor(ROWS % 3)]
    assert load(TensorDataset(images, one_hot, labels)).domain_names == ("0", "1")
