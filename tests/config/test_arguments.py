"""Words that mean the opposite to Python where no type reads them."""

import inspect

import pytest

from fedbench.config.arguments import refuse_word
from fedbench.errors import ConfigError


def own(bn: bool = True, plain=False, declared: "bool" = 1, norm: str | None = None, act="none"):
    return bn, plain, declared, norm, act


ARGUMENTS = inspect.signature(own).parameters


@pytest.mark.parametrize(
    ("key", "word", "line"),
    [
        ("bn", "off", "model.bn = 'off': own takes true or false there"),
        ("plain", "no", "takes true or false there"),
        ("declared", "yes", "takes true or false there"),
        ("norm", "None", "model.norm = 'None': is a text; write null for own's default, None"),
    ],
)
def test_words_that_python_reads_otherwise_are_refused(key, word, line):
    with pytest.raises(ConfigError, match=line):
        refuse_word(f"model.{key}", word, ARGUMENTS[key], "own")


@pytest.mark.parametrize(
    ("key", "value"), [("bn", False), ("plain", 1), ("norm", "batch"), ("norm", None), ("act", "none")]
)
def test_others_stay(key, value):
    refuse_word(f"model.{key}", value, ARGUMENTS[key], "own")
