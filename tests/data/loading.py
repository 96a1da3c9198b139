"""Data sets by name, and the one line with which anything is refused."""

import pytest

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.errors import ConfigError


def load(name: str, **options) -> Dataset:
    return Dataset.load(Config(data={"name": name, **options}).data)


def refused(call, *arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
