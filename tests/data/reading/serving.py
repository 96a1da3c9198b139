"""A machine without internet, and data sets asked of it."""

import hashlib
from pathlib import Path

import pytest

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.errors import ConfigError

NOWHERE = "http://127.0.0.1:9/"
"""Nothing listens there: a machine without internet."""


def load(name: str, **options) -> Dataset:
    return Dataset.load(Config(data={"name": name, **options}).data)


def refused(call, *arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()
