"""The parts of a set by the names of folders or splits, and test samples where no part has them."""

import numpy as np
import pytest

from fedbench.data.reading.parts import VAL_IS_TEST, is_test_row, part_names, with_test_part
from fedbench.errors import ConfigError


def test_parts_have_several_names_in_any_case_of_which_the_first_counts():
    assert part_names(["Dev", "TRAINING", "other", "validation"]) == {"train": "TRAINING", "val": "validation"}
    assert part_names(["cat", "dog"]) == {}


def test_a_validation_part_tests_where_that_is_wanted_or_nothing_else_does():
    every = {"train": 1, "val": 2, "test": 3}
    assert with_test_part(every, None, "") == with_test_part(every, "test", "") == (every, [])
    assert with_test_part(every, "val", "") == ({"train": 1, "test": 2}, [VAL_IS_TEST])
    assert with_test_part({"train": 1, "val": 2}, None, "") == ({"train": 1, "test": 2}, [VAL_IS_TEST])
    assert with_test_part({"train": 1}, None, "") == ({"train": 1}, [])
    with pytest.raises(ConfigError, match=r"data\.test_part = val: not here"):
        with_test_part({"train": 1}, "val", "not here")


def test_every_fifth_row_is_a_test_row():
    assert [index for index in range(12) if is_test_row(index)] == [4, 9]
    assert is_test_row(np.arange(6)).tolist() == [False] * 4 + [True, False]
