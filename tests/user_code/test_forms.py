"""The form of an object is known by its types and shapes."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedbench.user_code.forms import form_of

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
