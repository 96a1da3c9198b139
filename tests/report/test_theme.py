"""Direct labels never overlap."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.theme import LIGHT, colour_of, spread


@given(st.lists(st.floats(0, 100), max_size=12), st.floats(0.1, 10))
def test_labels_keep_their_order_and_distance(values: list[float], gap: float) -> None:
    places = spread(sorted(values), gap)
    assert len(places) == len(values)
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(places))


def test_labels_that_do_not_collide_stay_where_they_are() -> None:
    assert spread([1.0, 5.0], 2.0) == [1.0, 5.0]
    assert spread([1.0, 1.0], 2.0) == pytest.approx([0.0, 2.0])


def test_the_own_method_has_the_accent_and_the_others_differ() -> None:
    colours = colour_of(["fedcac", "local", "centralized", "fedavg-ft"], "fedcac")
    assert colours["fedcac"] == LIGHT["accent"]
    assert len(set(colours.values())) == 4
