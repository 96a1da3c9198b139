"""What an object is: the form of a part, and parts or clients among several."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedbench.user_code.parts import ByClient, SectionKeys, form_of, parts_of

X, Y = np.ones((5, 3)), np.arange(5) % 2
FRAME = pd.DataFrame({"a": Y, "y": Y})
ITEMS = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ((X, Y), "arrays"),
        ([X.tolist(), Y.tolist()], "arrays"),
        ({"x": X, "label": Y}, "columns"),
        (FRAME, "table"),
        ([(X[0], 1), (X[1], 0)], "items"),
        (torch.utils.data.Subset(ITEMS, [0]), "TensorDataset"),
        (X, ""),
        ((X[0], 1), ""),
        ({"x": X[0], "label": 1}, ""),
        ([FRAME, FRAME], ""),
        ({}, ""),
        ("digits", ""),
    ],
)
def test_the_form_of_a_part(value, form):
    assert form_of(value) == form


def test_parts_of_one_form_are_clients_and_others_are_parts():
    assert [*parts_of([FRAME] * 4)[0]["train"]] == ["0", "1", "2", "3"]
    assert not isinstance(parts_of([(X[0], 1), (X[1], 0), (X[2], 1)])[0]["train"], ByClient)
    assert [*parts_of((ITEMS, FRAME))[0]] == ["train", "test"]
    assert [*parts_of((FRAME, FRAME), SectionKeys(user="a"))[0]] == ["train", "test"]
    assert [*parts_of({"b": FRAME, "a": FRAME})[0]["train"]] == ["b", "a"]
