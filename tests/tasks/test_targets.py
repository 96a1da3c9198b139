"""Targets as tasks give them."""

import numpy as np
import pytest

from fedbench.tasks.targets import TargetError, check_numbers


def test_text_is_no_number():
    check_numbers(np.array([True, False]), "mine")
    with pytest.raises(TargetError, match=r"label 'a' is text; data\.task = mine needs numbers"):
        check_numbers(np.array(["a", "b"]), "mine")
