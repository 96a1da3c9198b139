"""Which remarks are doubts, and how each is said once."""

import pytest

from fedbench.results.remarks import doubts_in, is_doubt, numbered, with_methods

FEDBN = "fedbn: the model has no BatchNorm layer with numbers of its own, so this is fedavg"
READING = "column age is a feature"


@pytest.mark.parametrize(
    "line",
    [
        FEDBN,
        "train.momentum = 0.9: without effect: train.optimizer = adam has none",
        "method.tau = 4 is not reached in 3 rounds",
        "seed 0: some outputs at after_agg are not numbers, none of them is correct: lower the learning rates",
        "seed 0: nothing was trained in round 1: no client ended a fit with a gradient step",
    ],
)
def test_what_concerns_the_numbers_is_a_doubt(line):
    assert is_doubt(line)


@pytest.mark.parametrize("line", [READING, "train.width = 3: without effect with train.engine = loop"])
def test_what_is_harmless_is_a_note(line):
    assert not is_doubt(line)


def test_doubts_are_numbered_once():
    assert doubts_in([READING, FEDBN, FEDBN]) == (FEDBN,)
    assert numbered([(), (FEDBN,), ("b", FEDBN)]) == {FEDBN: 1, "b": 2}


def test_a_remark_stands_once_with_its_methods():
    said = with_methods({"fedper": [READING, "one"], "local": [READING]})
    assert said == [READING, "fedper: one"]
    assert with_methods({"fedper": ["one", "one"]}) == ["fedper: one"]
