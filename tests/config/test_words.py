"""What a key takes is said in words."""

from fedbench.config import Config
from fedbench.config.words import legal_of


def test_ranges_are_put_in_words():
    train = type(Config().train).model_fields
    assert legal_of(train["lr_decay"]) == "number in (0, 1]"
    assert legal_of(train["steps"]) == "whole number >= 1 or none"
    assert legal_of(train["shuffle"]) == "true or false"
