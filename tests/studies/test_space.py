"""What a method is tuned over."""

import pytest

from fedbench.errors import ConfigError
from fedbench.studies.space import Space, at_an_end, check_space

AXES = {"method.tau": [0.1, 0.5, 0.9], "train.lr": [0.01, 0.1]}


def test_points_are_all_combinations_that_make_sense():
    space = Space(AXES, lambda values: values["method.tau"] < 0.9 or values["train.lr"] < 0.1)
    assert len(space.points()) == 5
    assert {"method.tau": 0.9, "train.lr": 0.1} not in space.points()


def test_some_points_are_always_the_same_ones_in_their_order():
    few = Space(AXES).points(3)
    assert few == Space(AXES).points(3)
    assert len(few) == 3
    assert [point for point in Space(AXES).points() if point in few] == few
    assert Space(AXES).points(10) == Space(AXES).points()


def test_a_key_that_is_set_is_no_axis():
    assert Space(AXES).without(["train.lr"]).points() == [{"method.tau": tau} for tau in AXES["method.tau"]]


def test_a_method_without_a_space_says_what_to_write():
    with pytest.raises(ConfigError, match=r"write tune_spaces/clumsy.py with SPACE = "):
        Space.of("tests.runtime.accidents:Clumsy")


@pytest.mark.parametrize(
    "key", ["seeds", "rounds", "partition.alpha", "data.val", "public.size", "model.hidden", "method", "method.name"]
)
def test_what_a_grid_must_not_search_is_refused(key):
    with pytest.raises(ConfigError, match=rf"space: {key}: a grid searches keys of method\.\* and train\.\*"):
        check_space({"train.lr": [0.1], key: [1, 2]})


@pytest.mark.parametrize("values", [[], [0.1, 0.1], [1, 1.0], [None, "none"]])
def test_each_value_of_a_key_is_another(values):
    with pytest.raises(ConfigError, match=r"space: method\.tau = .*different values"):
        check_space({"method.tau": values})


@pytest.mark.parametrize(
    ("key", "values", "best", "end"),
    [
        ("train.lr", [0.01, 0.1, 1.0], 1.0, True),
        ("train.lr", [0.01, 0.1, 1.0], 0.01, True),
        ("train.lr", [0.01, 0.1, 1.0], 0.1, False),
        ("train.lr", [0.01, 0.1], 0.1, False),  # a choice of two has no ends
        ("train.momentum", [0.0, 0.5, 0.9], 0.0, False),  # nothing below is legal
        ("train.momentum", [0.0, 0.5, 0.9], 0.9, True),
        ("method.tau", [0.5, 0.7, 1.0], 1.0, False),  # nothing above is legal
        ("method.beta", [None, 10.0, 30.0], None, False),
        ("method.beta", [None, 10.0, 20.0, 30.0], 30.0, True),
    ],
)
def test_the_end_of_a_scale_is_where_a_better_value_may_lie_beyond(key, values, best, end):
    assert at_an_end("fedcac", [{key: value} for value in values], {key: best}) == ([key] if end else [])
