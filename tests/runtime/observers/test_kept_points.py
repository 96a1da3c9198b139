"""Whose models or predictions are asked for, and when."""

import pytest

from fedbench.runtime.observers.kept_points import KeptPoints

DRAWN = {1: [0, 1], 2: [1], 3: [0]}


def test_who_is_asked_and_when():
    asked = KeptPoints(True, 3, "fit", DRAWN.__getitem__).models_to_keep
    assert [list(asked(client, 0)) for client in (0, 1, 2)] == [[], [], ["idle_model"]], "2 never trains"
    assert [list(asked(client, 1)) for client in (0, 1, 2)] == [[], ["after_fit"], ["idle_model"]]
    assert [list(asked(client, 3)) for client in (0, 1, 2)] == [["after_agg", "idle_model"]] * 3


def test_nobody_is_asked_unless_something_is_kept():
    assert KeptPoints(False, 3, "fit", DRAWN.__getitem__).models_to_keep(0, 3) == ()


@pytest.mark.parametrize(
    ("after_fit", "asked", "points"),
    [
        ("fit", "after_agg", ["after_agg"]),
        ("after_agg", "after_agg", ["after_agg", "after_fit"]),
        ("global", "global", ["after_fit"]),
        ("fit", "idle_model", ["after_fit"]),
    ],
)
def test_a_model_counts_at_the_points_that_it_is_evaluated_at(after_fit, asked, points):
    assert KeptPoints(True, 3, after_fit, DRAWN.__getitem__).points(asked) == points
