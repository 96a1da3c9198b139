"""Data sets by name, and the one line with which anything is refused."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def with_any_damage(test: Callable, examples: int = 80) -> Callable:
    """The test with `data`, by which hypothesis chooses how a file of a fixture is damaged."""
    often = settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
    return often(given(data=st.data())(test))
