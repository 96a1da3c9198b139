"""Words that mean the opposite to Python where no type reads them."""

import inspect
from typing import Literal

import pytest

from fedbench.config.arguments import refuse_word
from fedbench.errors import ConfigError


def own(
    bn: bool = True,
    plain=False,
    declared: "bool" = 1,
    norm: str | None = None,
    act="none",
    either: bool | str = True,
    same: "bool | Literal['same', 'no']" = False,
    reduction: Literal["none", "mean"] | None = None,
):
    return bn, plain, declared, norm, act, either, same, reduction


ARGUMENTS = inspect.signature(own).parameters


@pytest.mark.parametrize(
    ("key", "word", "line"),
    [
        ("bn", "off", "model.bn = 'off': own takes true or false there"),
        ("plain", "no", "takes true or false there"),
        ("declared", "yes", "takes true or false there"),
        ("norm", "None", "model.norm = 'None': that is a text; write null for None, the default of own"),
    ],
)
def test_words_that_python_reads_otherwise_are_refused(key, word, line):
    with pytest.raises(ConfigError, match=line):
        refuse_word(f"model.{key}", word, ARGUMENTS[key], "own")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bn", False),
        ("plain", 1),
        ("norm", "batch"),
        ("norm", None),
        ("act", "none"),
        ("either", "off"),
        ("same", "no"),
        ("reduction", "none"),
        ("bn", "inplace"),
    ],
)
def test_others_stay(key, value):
    refuse_word(f"model.{key}", value, ARGUMENTS[key], "own")
