"""What a key takes is said in words."""

import pytest

from fedbench.config import Config
from fedbench.config.words import legal_of
from fedbench.errors import ConfigError


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
