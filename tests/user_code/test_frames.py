"""Frames of several parts or clients belong together by the names of their columns, and rows by their order."""

import numpy as np
import pandas as pd
import pytest

from fedbench.errors import ConfigError
from fedbench.user_code.parts import parts_of, pieces_in, with_one_order

A = pd.DataFrame(np.arange(12).reshape(4, 3), columns=["a", "b", "c"])
B = A[["c", "a", "b"]]
Y = np.array([0, 1, 0, 1])
LABELS = pd.DataFrame(np.eye(4, 2, dtype=int), columns=["cough", "rash"])


@pytest.mark.parametrize(
    "data",
    [
        (A, Y, B, Y),
        {"train": (A, Y), "test": (B, Y)},
        {"train": {"x": A, "y": Y}, "test": {"x": B, "y": Y}},
        {"north": (A, Y), "south": (B, Y)},
        {"north": {"train": (A, Y), "test": (B, Y)}, "south": {"train": (B, Y), "test": (B, Y)}},
    ],
)
def test_columns_go_by_name(data):
    for part in parts_of(data).parts.values():
        for piece in pieces_in(part):
            samples = piece["x"] if isinstance(piece, dict) else piece
            assert [*samples.columns][:3] == ["a", "b", "c"]
            assert (samples.to_numpy()[:, :3] == A.to_numpy()).all()


def test_columns_of_targets_go_by_name():
    parts = with_one_order({"train": (A, LABELS), "test": (A, LABELS[["rash", "cough"]])})
    assert (parts["test"][1].to_numpy() == LABELS.to_numpy()).all()


def test_arrays_and_columns_in_one_order_stay_the_objects_that_they_are():
    parts = {"train": (A, Y), "test": (A.to_numpy(), Y), "val": (A[:2], Y[:2])}
    assert all(with_one_order(parts)[name] is part for name, part in parts.items())


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ((A, Y, A.rename(columns={"a": "q"}), Y), "in the test part the columns of samples lack a and have q besides"),
        (
            {"north": (A, Y), "south": (A[["a", "b"]], Y)},
            "in the train part of client south the columns of samples lac",
        ),
        (
            (A, LABELS, A, LABELS.assign(fever=0)),
            "columns of targets have fever besides, unlike in the train part; name",
        ),
        (
            (A[["a", "b", "b"]], Y, A[["b", "a", "b"]], Y),
            "in the test part two columns of samples are called b; rename",
        ),
        (
            (A[::-1], pd.Series(Y)),
            "in the train part samples and targets have the same index in different orders; sort",
        ),
    ],
)
def test_other_names_and_rows_in_another_order_are_refused(data, line):
    with pytest.raises(ConfigError, match=line):
        parts_of(data)
