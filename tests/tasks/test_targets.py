"""Targets as tasks give them."""

import numpy as np
import pytest

from fedbench.tasks.targets import TargetError, check_numbers, of_each


def test_text_is_no_number():
    check_numbers(np.array([True, False]), "mine")
    with pytest.raises(TargetError, match=r"label 'a' is text; data\.task = mine needs numbers"):
        check_numbers(np.array(["a", "b"]), "mine")


def test_names_count_only_if_there_is_one_for_each():
    assert of_each(["a", "b"], 2) == ("a", "b")
    assert of_each(["a"], 2) == ()
