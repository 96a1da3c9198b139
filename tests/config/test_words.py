"""What a key takes is said in words."""

import pytest
from pydantic import ValidationError, field_validator

from fedbench.config import Config, Section
from fedbench.config.words import legal_of, plural, refuse_values
from fedbench.errors import ConfigError, RunError


def test_one_is_singular():
    assert [plural(count, "run") for count in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_ranges_are_put_in_words():
    train = type(Config().train).model_fields
    assert legal_of(train["lr_decay"]) == "number in (0, 1]"
    assert legal_of(train["steps"]) == "whole number >= 1 or none"
    assert legal_of(train["shuffle"]) == "true or false"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"seed": 3}, "unknown key seed: did you mean seeds or partition.seed?"),
        ({"train": {"epoch": 3}}, "unknown key train.epoch: did you mean epochs?"),
        ({"lr": 3}, "unknown key lr: did you mean train.lr?"),
    ],
)
def test_an_unknown_key_names_the_one_that_is_meant(values, line):
    with pytest.raises(ConfigError) as error:
        Config(**values)
    assert str(error.value) == line


class Judged(Section):
    first: int = 0
    second: str = ""

    @field_validator("second")
    @classmethod
    def _judge(cls, value: str) -> str:
        if value == "run":
            raise RunError("the method fails", "mine.py:3", "Traceback")
        if value == "config":
            raise ConfigError("second thoughts: what to do") from KeyError("why")
        raise ValueError("must be legal")


@pytest.mark.parametrize(
    ("values", "kind", "line"),
    [
        ({"second": "config"}, ConfigError, "second thoughts: what to do"),
        ({"first": "x", "second": "config"}, ConfigError, "second thoughts: what to do"),
        ({"second": "run"}, RunError, "the method fails (mine.py:3)"),
        ({"second": "other"}, ConfigError, "a.second = 'other': must be legal"),
        ({"first": "x", "second": "other"}, ConfigError, "a.first = 'x': must be a whole number"),
    ],
)
def test_an_error_of_ones_own_in_a_validator_keeps_its_kind_and_text(values, kind, line):
    with pytest.raises(ValidationError) as wrapped:
        Judged(**values)
    with pytest.raises(ConfigError) as error:
        refuse_values(wrapped.value, Judged, "a.")
    assert type(error.value) is kind
    assert str(error.value) == line
    assert isinstance(error.value.__cause__, KeyError) == (values["second"] == "config")
