"""Several parts in one object are parts of a data set, or clients."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedbench.user_code.parts import ByClient, SectionKeys, part_in_name, parts_of

X, Y = np.ones((5, 3)), np.arange(5) % 2
FRAME = pd.DataFrame({"a": Y, "y": Y})
ITEMS = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))


def test_parts_of_one_form_are_clients_and_others_are_parts():
    assert [*parts_of([FRAME] * 4)[0]["train"]] == ["0", "1", "2", "3"]
    assert not isinstance(parts_of([(X[0], 1), (X[1], 0), (X[2], 1)])[0]["train"], ByClient)
    assert [*parts_of((ITEMS, FRAME))[0]] == ["train", "test"]
    assert [*parts_of((FRAME, FRAME), SectionKeys(user="a"))[0]] == ["train", "test"]
    assert [*parts_of({"b": FRAME, "a": FRAME})[0]["train"]] == ["b", "a"]


def test_arrays_of_an_open_archive_are_columns(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2)), y=np.arange(3))
    with np.load(tmp_path / "x.npz") as archive:
        (part,) = parts_of(archive).parts.values()
    assert {name: column.shape for name, column in part.items()} == {"x": (3, 2), "y": (3,)}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("UNSW_NB15_training-set", "train"),
        ("images.Testing 2", "test"),
        ("split=dev", "val"),
        ("my valid", "val"),
        ("validation-00000-of-00001", "val"),
        ("latest", ""),
        ("trains", ""),
        ("devices", ""),
    ],
)
def test_a_part_is_a_word_of_a_name(name, part):
    assert part_in_name(name) == part
