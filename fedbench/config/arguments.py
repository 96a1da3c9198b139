"""Arguments of the users' own classes and functions, whose words no type of fedbench reads."""

import inspect
from typing import Any

from fedbench.errors import ConfigError


def refuse_word(key: str, value: Any, parameter: inspect.Parameter, taker: str) -> None:
    """Raises ConfigError for a text where an argument is a truth value, and for `none` where its default is None.

    `off` and `no` are text in YAML 1.2, as `none` is, and a text counts as true in Python. taker: whose argument it is.
    """
    if not isinstance(value, str):
        return
    if parameter.annotation in (bool, "bool") or isinstance(parameter.default, bool):
        raise ConfigError(f"{key} = {value!r}: {taker} takes true or false there")
    if parameter.default is None and value.casefold() == "none":
        raise ConfigError(f"{key} = {value!r}: is a text; write null for {taker}'s default, None")
